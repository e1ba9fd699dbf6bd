"""The document that make pdf prints: all pages, and links that stay in it."""

from tools.pdf import one_document

PAGE = """<html><head><link rel="stylesheet" href="../_static/book.css"></head><body>
<article><h1 id="title">{name}<a class="headerlink" href="#title">#</a></h1>
<a href="{other}.html#title">there</a> <a href="#title">here</a> <a href="{other}.html">page</a>
<a href="../genindex.html">index</a> <a href="https://example.org/">site</a>
<img src="../_images/a.png"><script>alert()</script></article></body></html>"""


def test_pages_become_one_document(tmp_path):
    (tmp_path / "html" / "book").mkdir(parents=True)
    for name, other in (("a", "b"), ("b", "a")):
        page = PAGE.format(name=name, other=other)
        (tmp_path / "html" / "book" / f"{name}.html").write_text(page)
    text = one_document(tmp_path / "html", ["book/a", "book/b"], tmp_path / "pdf")
    assert text.index('id="a--title"') < text.index('id="b--title"')
    for address in ("#b--title", "#a--title", "#a", "#b", "https://example.org/"):
        assert f'href="{address}"' in text
    assert "../html/book/../_images/a.png" in text
    assert "genindex" not in text and "alert" not in text
