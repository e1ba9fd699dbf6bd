"""What the pages show of the book's public address, which `[project.urls]` of pyproject.toml names.

With `Source`, the repository: its buttons, and those that run a page elsewhere. With `Documentation`, the address of
the pages: canonical links, a site map, and cards for links that are shared. Without an address nothing of it, nor the
repositories that Jupyter Book and sphinx-thebe put in its place.
"""

import tomllib
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

LARGE_IMAGE = '<meta name="twitter:card" content="summary_large_image" />'


def theme_options(source: str) -> dict[str, object]:
    """The buttons of a repository. Colab and live code read from GitHub alone, whatever the host of the address."""
    if not source:
        return {"repository_url": "", "launch_buttons": {}}
    host = urlsplit(source).netloc
    on_github = host == "github.com"
    colab = "https://colab.research.google.com" if on_github else ""
    return {
        "repository_url": source,
        "repository_branch": "main",
        "repository_provider": "gitlab" if "gitlab" in host else "github",
        "use_repository_button": True,
        "use_edit_page_button": True,
        "use_issues_button": True,
        "launch_buttons": {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": colab,
            "thebe": on_github,
        },
    }


def cards_and_site_map(pages: str, title: str) -> dict[str, object]:
    """The options of Sphinx, sphinx_sitemap and sphinxext.opengraph for pages at an address."""
    base = f"{pages.rstrip('/')}/"
    return {
        "html_baseurl": base,
        "sitemap_url_scheme": "{link}",
        "sitemap_excludes": ["404.html", "genindex.html", "search.html"],
        "ogp_site_url": base,
        "ogp_site_name": title,
        "ogp_image": f"{base}_static/card.png",
        "ogp_image_alt": "A skewed density and the Gaussian that has its peak and its curvature.",
        "ogp_custom_meta_tags": [LARGE_IMAGE],
    }


def without_live_code(app: Sphinx) -> None:
    """Every page would name the repository of examples with which sphinx-thebe starts where it knows no other."""
    for event in ("env-before-read-docs", "doctree-resolved"):
        for listener in [*app.events.listeners[event]]:
            if listener.handler.__module__ == "sphinx_thebe":
                app.disconnect(listener.id)


def setup(app: Sphinx) -> dict[str, bool]:
    pyproject = tomllib.loads((app.srcdir / "pyproject.toml").read_text())
    urls = pyproject["project"]["urls"]
    theme = theme_options(urls.get("Source", ""))
    pages = urls.get("Documentation", "")

    def show(app: Sphinx, config: Config) -> None:
        config.html_theme_options |= theme
        # Where the pages lie on their host: one that is not there, at any depth, is answered by 404.html.
        config.html_context["pages_folder"] = (
            f"{urlsplit(pages).path.rstrip('/')}/" if pages else ""
        )
        if pages:
            options = cards_and_site_map(pages, config.html_title)
            for name, value in options.items():
                config[name] = value

    app.connect("config-inited", show)
    if pages:
        app.setup_extension("sphinx_sitemap")
        app.setup_extension("sphinxext.opengraph")
    if not theme["launch_buttons"].get("thebe"):
        without_live_code(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
