"""The documentation as a site: every link of every page leads to a file and a heading."""

import html.parser
import os
from pathlib import Path
from urllib.parse import unquote

import pytest


@pytest.fixture(scope="module")
def site(import_script):
    return import_script("site_of_docs")


class Links(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links += [found["href"]] if tag == "a" else []
        self.anchors |= {found["id"]} if "id" in found else set()


@pytest.fixture(scope="module")
def folder(site, tmp_path_factory):
    path = tmp_path_factory.mktemp("site")
    site.Site(path).write()
    return path


@pytest.mark.slow
def test_links_lead_to_files_and_headings(site, folder):
    read = {path.resolve(): Links(path) for path in folder.rglob("*.html")}
    assert len(read) > len(site.pages())
    for path, page in read.items():
        for link in page.links:
            name, _, anchor = unquote(link).partition("#")
            if "://" in link:
                continue
            target = Path(os.path.normpath(path.parent / name)) if name else path
            assert target.exists(), f"{path}: {link}"
            assert not anchor or anchor in read[target].anchors, f"{path}: {link}"


@pytest.mark.slow
def test_every_page_has_the_drawers(site, folder):
    for page in site.pages():
        text = (folder / page.with_suffix(".html")).read_text(encoding="utf-8")
        for drawer in ("Start", "Tasks", "Reference", "Inside"):
            assert f"<h2>{drawer}</h2>" in text.partition("<main>")[0], page


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Page\n[there](nosuch.md)", "nosuch.md: no such file"),
        ("# Page\n[there](#nowhere)", "docs/index.md#nowhere"),
    ],
)
def test_a_link_to_nothing_is_an_error(site, tmp_path, monkeypatch, text, reason):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(text + "\n\n## Start\n")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=reason):
        site.Site(tmp_path / "site").write()


def test_equal_headings_have_anchors_of_their_own(site):
    seen = site.Counter()
    assert [site.slug(title, seen) for title in ("`a_b`: C++", "A", "a")] == ["a_b-c", "a", "a-1"]
