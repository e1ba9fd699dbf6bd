"""The book names no public address but that of `[project.urls]`; with one, all that depends on it comes back."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote
from xml.etree import ElementTree

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from IPython.core.inputtransformer2 import TransformerManager

from tools.notebooks import installation

ROOT = Path(__file__).parents[2]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
ELSEWHERE = {
    "Source": "https://example.org/ada/laplace",
    "Documentation": "https://example.org/pages",
}
NAME = "laplacebook"
LAUNCH = "https://mybinder.org"

# Where repositories and packages are, and what runs them; then, where their pages are.
HOSTS = (
    r"(?:github\.com|githubusercontent\.com|gitlab\.com|bitbucket\.org|codeberg\.org"
    r"|pypi\.org|mybinder\.org|nbviewer\.org|colab\.research\.google\.com)"
)
PAGES = r"[\w-]+\.(?:github|gitlab|readthedocs)\.io"
END = r"\s\"'<>()\[\]{}|\\`"
ADDRESS = re.compile(rf"(?:https?://|git@)[^{END}]+|{HOSTS}[/:][^{END}]+")
# Other projects, which the book cites or names.
OTHERS = (
    "github.com/fehiepsi/rethinking-numpyro",
    "github.com/jax-ml/jax",
    "nbgrader.readthedocs.io",
)


def addresses_of_ours(text, urls=()):
    """What could be an address of the book: on a host of repositories, or with its name; but for `urls`."""
    known = OTHERS + tuple(bare(url) for url in urls)
    found = [bare(match) for match in ADDRESS.findall(text)]
    return [a for a in found if could_be_ours(a) and not a.startswith(known)]


def bare(address):
    return re.sub(r"^(https?://|git@)", "", address)


def could_be_ours(address):
    host, path = re.fullmatch(r"([^/:]*)[/:]?(.*)", address).groups()
    hosted = re.search(f"{HOSTS}$", host) and path
    return bool(NAME in address or re.fullmatch(PAGES, host) or hosted)


def files():
    """Every text file that is tracked, or that git would track."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in names.split("\0") if Path(name).suffix not in (".png", ".npz")]
    return [path for path in paths if path.is_file()]


def test_no_file_names_another_address():
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files()}
    assert "book/taylor.ipynb" in found
    complaints = {name: addresses_of_ours(text, URLS.values()) for name, text in found.items()}
    assert {name: addresses for name, addresses in complaints.items() if addresses} == {}


ADA = "ada/laplace"
OURS = {
    "a repository": f"https://github.com/{ADA}",
    "its host and name": f"Clone github.com/{ADA}.",
    "by ssh": f"git@gitlab.com:{ADA}.git",
    "an installation": f"%pip install git+https://codeberg.org/{ADA}",
    "pages": f"https://{'ada'}.github.io",
    "a launch": f"[![](badge.svg)](https://colab.research.google.com/{'github'}/{ADA})",
    "another host": f"see https://www.{NAME}.example/start",
    "another host's path": f"<a href='https://example.org/{NAME}'>",
}


@pytest.mark.parametrize("kind", OURS)
def test_another_address_is_noticed(kind):
    assert len(addresses_of_ours(OURS[kind])) == 1


def test_addresses_of_others_and_of_the_setting_are_let_pass():
    others = "https://github.com, https://mybinder.org and https://example.org/laplace " + OTHERS[0]
    assert addresses_of_ours(others) == []
    assert addresses_of_ours(OURS["an installation"], [f"https://codeberg.org/{ADA}"]) == []


def test_setting_is_what_the_metadata_of_a_wheel_can_hold():
    assert URLS.keys() <= ELSEWHERE.keys()
    assert all(url.startswith("https://") for url in URLS.values())


def test_citations_have_the_repository_if_there_is_one():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    entry = re.search(r"```bibtex\n(.*?)```", (ROOT / "book" / "teaching.md").read_text(), re.S)[1]
    assert citation.get("repository-code") == URLS.get("Source")
    assert re.findall(r"url\s*= \{(.*)\}", entry) == [u for k, u in URLS.items() if k == "Source"]


def test_teachers_are_told_the_name_of_the_wheel():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    wheels = re.findall(r"\S+\.whl", (ROOT / "book" / "teaching.md").read_text())
    assert {w.strip("`") for w in wheels} == {f"{NAME}-{version}-py3-none-any.whl"}


# The cell below the title of each chapter.


def run(cell, *flags):
    return subprocess.run([sys.executable, *flags, "-c", cell], capture_output=True, text=True)


def test_installation_is_silent_where_the_package_is():
    ran = run(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{installation('').source}")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_missing_package_is_an_error_that_says_how_to_install_it():
    error = run(installation("").source, "-I", "-S").stderr
    assert "ModuleNotFoundError: laplacebook is not installed" in error
    assert "%pip install .. " in error and "%pip install WHEEL" in error


@pytest.mark.parametrize("source", ["", ELSEWHERE["Source"]])
def test_a_chapter_with_a_sparse_precision_says_how_to_install_what_that_needs(monkeypatch, source):
    cell = TransformerManager().transform_cell(installation(source, "f(structure='dense')").source)
    sparse = installation(source, 'lb.laplace(model, structure="sparse")').source
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "qdldl" else find(name)
    )
    exec(cell)
    with pytest.raises(
        ModuleNotFoundError, match=r"(?s)laplacebook\[sparse\] is not.*pip install .*\[sparse\]"
    ):
        exec(TransformerManager().transform_cell(sparse))


@pytest.mark.parametrize("on_colab", [True, False])
def test_an_address_is_installed_from_on_colab_and_named_elsewhere(monkeypatch, on_colab):
    ran = []
    shell = SimpleNamespace(run_line_magic=lambda *magic: ran.append(magic))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cell = TransformerManager().transform_cell(installation(ELSEWHERE["Source"]).source)
    if on_colab:
        monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
        exec(cell, {"get_ipython": lambda: shell})
    else:
        with pytest.raises(ModuleNotFoundError, match=f"pip install .*git.{ELSEWHERE['Source']}"):
            exec(cell, {"get_ipython": lambda: shell})
    assert ran == [("pip", f'install -q "laplacebook @ git+{ELSEWHERE["Source"]}"')] * on_colab


# A book of one page with the settings of this one.


def build(folder, urls):
    """The page, its notebook and the folder of a site whose notebook `make notebooks` has written."""
    kept = shutil.ignore_patterns("*.ipynb", "*.md", "moved.toml", "__pycache__")
    shutil.copytree(ROOT / "book", folder / "book", ignore=kept)
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=kept)
    settings = (ROOT / "_config.yml").read_text()
    executing = "execute_notebooks: force"
    assert executing in settings
    (folder / "_config.yml").write_text(settings.replace(executing, 'execute_notebooks: "off"'))
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    lines = [f'{label} = "{url}"\n' for label, url in urls.items()]
    (folder / "pyproject.toml").write_text("[project.urls]\n" + "".join(lines))
    title = nbformat.v4.new_markdown_cell("# A title\n\nA sentence.")
    nbformat.write(nbformat.v4.new_notebook(cells=[title]), folder / "book" / "page.ipynb")
    for command in (
        [sys.executable, "-m", "tools.notebooks", "book/page.ipynb"],
        [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "-n", "--keep-going"],
    ):
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    html = folder / "_build" / "html"
    page = BeautifulSoup((html / "book" / "page.html").read_text(), "html.parser")
    return SimpleNamespace(html=html, page=page, notebook=html / "_sources" / "book" / "page.ipynb")


@pytest.fixture(scope="module")
def unpublished(tmp_path_factory):
    return build(tmp_path_factory.mktemp("unpublished"), {})


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return build(tmp_path_factory.mktemp("published"), ELSEWHERE)


def hrefs(site, tag="a", **attributes):
    return [element.get("href", "") for element in site.page.find_all(tag, attributes)]


def addresses(site):
    """What a page of the site names with its host."""
    return sum(
        (re.findall(r"https?://[^\s\"'<]+", p.read_text()) for p in site.html.rglob("*.html")), []
    )


def test_without_an_address_no_page_names_any(unpublished):
    assert addresses(unpublished) == []
    assert not unpublished.page.select("[property^='og:'], .fa-rocket, .fa-github, [rel=canonical]")
    assert not (unpublished.html / "sitemap.xml").exists()
    assert "%pip install .. " in unpublished.notebook.read_text()


def test_an_address_brings_back_buttons(published):
    source = ELSEWHERE["Source"]
    assert source in hrefs(published)
    assert f"{source}/edit/main/book/page.ipynb" in hrefs(published)
    assert any(href.startswith(f"{source}/issues/new?") for href in hrefs(published))
    binder = f"{LAUNCH}/v2/git/{quote(source)}/main?urlpath=lab/tree/book/page.ipynb"
    assert binder in hrefs(published)


def test_an_address_brings_back_links_and_cards(published):
    base = ELSEWHERE["Documentation"]
    assert hrefs(published, "link", rel="canonical") == [f"{base}/book/page.html"]
    cards = {tag["property"]: tag["content"] for tag in published.page.select("[property^='og:']")}
    assert cards["og:url"] == f"{base}/book/page.html"
    assert cards["og:image"] == f"{base}/_static/card.png"
    assert (published.html / "_static" / "card.png").is_file()
    site_map = ElementTree.parse(published.html / "sitemap.xml").getroot()
    assert [loc.text for loc in site_map.findall(".//{*}loc")] == [f"{base}/book/page.html"]


def test_an_address_brings_back_the_installation(published):
    assert f"laplacebook @ git+{ELSEWHERE['Source']}" in published.notebook.read_text()


def test_pages_name_no_address_but_that_of_the_setting(published):
    known = (*ELSEWHERE.values(), LAUNCH)
    assert [a for a in addresses(published) if not a.startswith(known)] == []


@pytest.mark.parametrize("host", ["github.com", "gitlab.com", "example.org"])
def test_colab_and_live_code_serve_github_alone(host):
    path = ROOT / "book" / "_extensions" / "address.py"
    spec = importlib.util.spec_from_file_location("address", path)
    spec.loader.exec_module(address := importlib.util.module_from_spec(spec))
    options = address.theme_options(f"https://{host}/{ADA}")
    launch, github = options["launch_buttons"], host == "github.com"
    assert options["repository_provider"] == ("gitlab" if host == "gitlab.com" else "github")
    assert (bool(launch["colab_url"]), launch["thebe"]) == (github, github)
