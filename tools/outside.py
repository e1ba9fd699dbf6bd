"""Execute copies of notebooks in an empty folder, with the installed laplacebook and no other.

python -P tools/outside.py book/taylor.ipynb ...
"""

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent


def main(paths: list[str]) -> None:
    """Execute each notebook; the first cell that fails ends it all."""
    notebooks = {path: nbformat.read(path, as_version=4) for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        package = Path(importlib.util.find_spec("laplacebook").origin).resolve()
        if package.parent.parent == ROOT.resolve():
            sys.exit(f"this is the source, not an installed package: {package}")
        for path, notebook in notebooks.items():
            start = time.perf_counter()
            resources = {"metadata": {"path": folder}}
            client = NotebookClient(
                notebook, timeout=240, kernel_name="python3", resources=resources
            )
            client.execute()
            print(f"{path}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
