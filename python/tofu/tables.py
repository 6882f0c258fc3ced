"""Plain tables: aligned columns without lines or colours, of any length and width.

A plan may have ten thousand rows. A layout engine such as rich's takes seconds for them.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["csv_table", "html_page", "line", "table"]


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
    picture: str = "",
    notes: Iterable[str] = (),
) -> str:
    """A self-contained page: a picture, which is HTML, a table, and notes below it."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    listed = "".join(f"<li>{html.escape(line)}</li>" for line in notes)
    name = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}</title><style>body{{font:14px sans-serif;margin:2em}}"
        "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}</style></head>\n"
        f"<body><h1>{name}</h1>\n{picture}<table><tr>{cells('th', header)}</tr>\n{body}\n</table>\n"
        f"{f'<ul>{listed}</ul>' if listed else ''}</body></html>\n"
    )
