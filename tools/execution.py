"""Execute notebooks, one on each core: for make notebooks, and, as an extension of Sphinx, for the book.

myst-nb executes a page when Sphinx reads it, one after the other, up to the first that fails. This extension has them
executed before, gives Sphinx the pages with their outputs, and names every cell that failed.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import nbformat
from myst_nb.sphinx_ import NbMetadataCollector
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import SphinxError
from sphinx.util import logging

MOST_KERNELS = 4  # each takes a gigabyte
LOGGER = logging.getLogger(__name__)


@dataclass
class Run:
    """What came of executing a notebook: its outputs up to the cell that failed, and which cell that is and why."""

    path: Path
    notebook: NotebookNode
    seconds: float
    failure: str | None


def execute(path: Path, notebook: NotebookNode, timeout: int) -> Run:
    """Execute a notebook in its folder."""
    start = time.perf_counter()
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", coalesce_streams=True, resources=resources
    )
    failure = None
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        failure = f"{path}, cell {client.code_cells_executed}:\n{error}"
    return Run(path, notebook, time.perf_counter() - start, failure)


def execute_all(notebooks: dict[Path, NotebookNode], timeout: int) -> Iterator[Run]:
    """Execute all notebooks, those with the most code first, and yield each when it is done."""
    longest_first = sorted(notebooks, key=lambda path: -lines_of_code(notebooks[path]))
    pool = ThreadPoolExecutor(min(MOST_KERNELS, os.cpu_count() or 1))
    try:
        runs = [pool.submit(execute, path, notebooks[path], timeout) for path in longest_first]
        yield from (run.result() for run in as_completed(runs))
    finally:
        pool.shutdown(cancel_futures=True)


def lines_of_code(notebook: NotebookNode) -> int:
    return sum(c.source.count("\n") + 1 for c in notebook.cells if c.cell_type == "code")


class Pages:
    """The notebooks of one build."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}

    def execute(self, app: Sphinx, env: BuildEnvironment, names: list[str]) -> None:
        """Execute those that Sphinx will read."""
        paths = {
            path: name for name in names if (path := Path(env.doc2path(name))).suffix == ".ipynb"
        }
        notebooks = {path: nbformat.read(path, as_version=4) for path in paths}
        LOGGER.info("executing %d notebooks", len(notebooks))
        for run in execute_all(notebooks, app.config.nb_execution_timeout):
            name = paths[run.path]
            LOGGER.info(
                "%s: %s after %.1f s", name, "failed" if run.failure else "executed", run.seconds
            )
            self.runs[name] = run

    def read(self, app: Sphinx, name: str, source: list[str]) -> None:
        """Give Sphinx the page with its outputs, and its table of execution times the seconds."""
        if run := self.runs.get(name):
            source[0] = nbformat.writes(run.notebook)
            data = {"mtime": time.time(), "method": "force", "runtime": run.seconds}
            data["succeeded"] = not run.failure
            NbMetadataCollector.set_exec_data(app.env, name, data)

    def report(self, app: Sphinx, env: BuildEnvironment) -> None:
        """End the build if a cell failed, once all pages were read and have had their say."""
        failed = {name: run.failure for name, run in self.runs.items() if run.failure}
        for failure in failed.values():
            LOGGER.error(failure)
        if failed:
            raise SphinxError(f"a cell failed in {', '.join(failed)}")


def take_over(app: Sphinx, config: Config) -> None:
    """Leave nothing to execute to myst-nb."""
    if config.nb_execution_mode == "force":
        config.nb_execution_mode = "off"
        pages = Pages()
        app.connect("env-before-read-docs", pages.execute)
        app.connect("source-read", pages.read)
        app.connect("env-updated", pages.report)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", take_over)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
