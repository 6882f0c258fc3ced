#!/usr/bin/env python3
"""Makes the documentation a site: a page for each Markdown file, which any browser opens.

    python scripts/site_of_docs.py build/site

Every page has the drawers of docs/index.md at its side. Links to other files of the repository
lead to copies of them, links to folders to lists of their files. A link to nothing is an error.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tofu.tables import PAGE_STYLE, PALETTE

ROOT = Path(__file__).resolve().parents[1]
INDEX = Path("docs/index.md")
_STYLE = """
body { display: grid; grid-template-columns: 15rem minmax(0, 1fr); gap: 2.5rem; }
nav { font-size: .9rem; } nav ul { list-style: none; padding: 0; margin: 0 0 1rem; }
nav h2 { font-size: .95rem; margin: .6rem 0 .2rem; }
a { color: var(--accent); } main li { color: inherit; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 5px;
  padding: .6rem .9rem; overflow-x: auto; }
code { font: 13px/1.45 ui-monospace, monospace; }
table { display: block; overflow-x: auto; }
@media (max-width: 60rem) { body { display: block; } }
"""


def pages() -> list[Path]:
    """The Markdown files that a reader may want, relative to the repository."""
    return sorted(
        path.relative_to(ROOT)
        for folder in (ROOT.glob("*.md"), ROOT.glob("docs/**/*.md"))
        for path in folder
    )


def slug(title: str, seen: Counter[str]) -> str:
    """The anchor of a heading, as forges make them: a second one of the same name gets a number."""
    text = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    seen[text] += 1
    return text if seen[text] == 1 else f"{text}-{seen[text] - 1}"


class Site:
    """Writes pages, and notes the links between them.

    Args:
        output: the folder of the site.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._markdown = MarkdownIt("commonmark").enable("table")
        self._anchors: dict[Path, set[str]] = {}
        self._links: list[tuple[Path, Path, str]] = []

    def write(self) -> None:
        """Write all pages. Raises SystemExit for links that lead nowhere."""
        drawers = (ROOT / INDEX).read_text(encoding="utf-8").partition("\n## ")
        for page in pages():
            body, title = self._rendered(page, (ROOT / page).read_text(encoding="utf-8"))
            menu, _ = self._rendered(INDEX, f"## {drawers[2]}", at=page)
            self._put(
                page.with_suffix(".html"),
                f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
                f'<meta name="viewport" content="width=device-width"><title>{title}</title>'
                f"<style>{PALETTE}{PAGE_STYLE}{_STYLE}</style></head>\n"
                f"<body><nav>{_short(menu)}</nav><main>{body}</main></body></html>\n",
            )
        missing = [
            f"{page}: {target}#{anchor}"
            for page, target, anchor in self._links
            if anchor and anchor not in self._anchors.get(target, {anchor})
        ]
        if missing:
            raise SystemExit("links to no heading:\n" + "\n".join(sorted(set(missing))))

    def _rendered(self, page: Path, text: str, at: Path | None = None) -> tuple[str, str]:
        """The HTML of a text of `page`, for a place on the page `at`, and its title."""
        tokens, seen, title = self._markdown.parse(text), Counter[str](), page.stem
        for token, inline in zip(tokens, [*tokens[1:], None]):
            if token.type == "heading_open" and inline is not None and at is None:
                anchor = slug(_plain(inline.children or []), seen)
                token.attrSet("id", anchor)
                self._anchors.setdefault(page, set()).add(anchor)
                title = html.escape(inline.content) if token.tag == "h1" else title
            for child in token.children or []:
                if child.type == "link_open":
                    child.attrSet("href", self._href(page, str(child.attrGet("href")), at or page))
        return self._markdown.renderer.render(tokens, self._markdown.options, {}), title

    def _href(self, page: Path, link: str, at: Path) -> str:
        """A link of a page as it is at another place of the site."""
        if re.match(r"\w+:", link):
            return link
        name, _, anchor = unquote(link).partition("#")
        target = page
        if name:
            target = Path(os.path.normpath(page.parent / name))
        if not (ROOT / target).exists():
            raise SystemExit(f"{page}: {link}: no such file")
        self._links.append((page, target, anchor))
        shown = self._shown(target)
        path = os.path.relpath(self._output / shown, (self._output / at).parent)
        return f"{path}#{anchor}" if anchor else path

    def _shown(self, target: Path) -> Path:
        """The file of the site that shows a file or folder of the repository."""
        if target in pages():
            return target.with_suffix(".html")
        if not (ROOT / target).is_dir():
            copy = self._output / target.with_name(f"{target.name}.txt")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / target, copy)
            return copy.relative_to(self._output)
        listing = target / "index.html"
        names = sorted(path.name for path in (ROOT / target).iterdir() if path.name[0] != "_")
        known = {page.name for page in pages() if page.parent == target}
        items = (
            f'<li><a href="{Path(name).with_suffix(".html")}">{name}</a>' if name in known
            else f"<li>{html.escape(name)}" for name in names
        )  # fmt: skip
        head = f"<!DOCTYPE html><title>{target}</title><style>{PALETTE}{PAGE_STYLE}</style>"
        self._put(listing, f"{head}<h1>{target}</h1><ul>{''.join(items)}</ul>\n")
        return listing

    def _put(self, path: Path, text: str) -> None:
        (self._output / path).parent.mkdir(parents=True, exist_ok=True)
        (self._output / path).write_text(text, encoding="utf-8")


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(token.content for token in tokens if token.type in ("text", "code_inline"))


def _short(menu: str) -> str:
    """The drawers without the words behind each link."""
    return re.sub(r"</a>: [^<]*(?:<code>[^<]*</code>[^<]*)*", "</a>", menu)


def main() -> None:
    """Write the site."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="the folder to write to")
    output = parser.parse_args().output
    Site(output).write()
    print(f"open {output / INDEX.with_suffix('.html')}")


if __name__ == "__main__":
    main()
