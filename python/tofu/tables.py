"""Plain tables: aligned columns without lines or colours, of any length and width.

A plan may have ten thousand rows. A layout engine such as rich's takes seconds for them.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["PAGE_STYLE", "PALETTE", "csv_table", "html_page", "line", "table"]

# The colours of every page and picture, by day and by night.
PALETTE = """:root {
  color-scheme: light dark;
  --back: #fff; --text: #1d2430; --faint: #5d6675; --line: #d9dee6; --panel: #f5f7fa;
  --accent: #2f6fd0; --fixed: #9aa7b8; --other: #b4472e; --good: #1d7a3e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14181f; --text: #e6eaf0; --faint: #9ba6b5; --line: #2d3542; --panel: #1c222c;
    --accent: #6ea4f4; --fixed: #5c6879; --other: #f0917a; --good: #6fcf91;
  }
}
"""
# The style of pages with tables.
PAGE_STYLE = """body { margin: 0 auto; padding: 1rem 1.25rem 3rem; max-width: 88rem;
  background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; overflow-wrap: anywhere; } .wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .22rem 1.4rem .22rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td { font-variant-numeric: tabular-nums; } .number { text-align: right; }
li { color: var(--faint); }
svg { max-width: 100%; height: auto; }
"""


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()
) -> list[str]:
    """The lines of a table.

    Args:
        header: the heading of every column.
        rows: per row, a cell for every column.
        right: the columns to align to the right.
    """
    body = [tuple(header), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*body)]
    return [line(row, widths, right=right) for row in body]


def line(row: Sequence[str], widths: Sequence[int], *, right: Collection[int] = ()) -> str:
    """One line of a table whose columns have these widths."""
    cells = [
        cell.rjust(width) if k in right else cell.ljust(width)
        for k, (cell, width) in enumerate(zip(row, widths))
    ]
    return "  ".join(cells).rstrip()


def csv_table(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Records as CSV, with a line for the names of the columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def html_page(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    lead: Iterable[str] = (),
    picture: str = "",
    notes: Iterable[str] = (),
    links: Mapping[tuple[int, int], str] | None = None,
) -> str:
    """A self-contained page.

    Args:
        title: its heading.
        header: the heading of every column of the table.
        rows: per row, a cell for every column.
        right: the columns to align to the right.
        lead: paragraphs above the table.
        picture: HTML between the lead and the table.
        notes: paragraphs below the table.
        links: the page that a cell leads to, by row and column; None: no cell leads anywhere.
    """

    def linked(text: str, row: int, column: int) -> str:
        target = (links or {}).get((row, column), "")
        shown = html.escape(text)
        return f'<a href="{html.escape(target)}">{shown}</a>' if target else shown

    def cells(tag: str, texts: Sequence[str], row: int = -1) -> str:
        sides = (" class=number" * (k in right) for k in range(len(texts)))
        return "".join(
            f"<{tag}{side}>{linked(text, row, column)}</{tag}>"
            for column, (side, text) in enumerate(zip(sides, texts))
        )

    body = "\n".join(f"<tr>{cells('td', row, number)}</tr>" for number, row in enumerate(rows))
    above = "\n".join(f"<p>{html.escape(line)}</p>" for line in lead)
    listed = "".join(f"<li>{html.escape(line)}</li>" for line in notes)
    name = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{PALETTE}{PAGE_STYLE}</style></head>\n"
        f"<body><h1>{name}</h1>\n{above}{picture}<div class='wide'><table>"
        f"<tr>{cells('th', header)}</tr>\n{body}\n</table></div>\n"
        f"{f'<ul>{listed}</ul>' if listed else ''}</body></html>\n"
    )
