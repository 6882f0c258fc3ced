"""Reads a page of a plan: its elements, and the data that it holds."""

from __future__ import annotations

import html.parser
import json

VOID = {"meta", "rect", "br", "img", "link", "input", "wbr"}


class Page(html.parser.HTMLParser):
    """Checks that elements nest, and collects texts, tags, references and data."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.references = [], [], [], []
        self.ids, self.controls, self.scripts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open
        (data,) = (body for kind, body in self.scripts if kind == "application/json")
        self.data = json.loads(data)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]
        self.ids += [value for name, value in attrs if name == "id"]
        self.controls += [
            value for name, value in attrs if name in ("aria-controls", "aria-labelledby")
        ]
        if tag == "script":
            self.scripts.append((dict(attrs).get("type", ""), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            kind, body = self.scripts[-1]
            self.scripts[-1] = kind, body + data
        else:
            self.texts.append(data.strip())

    def tensors(self, plan=0):
        """The tensors of a plan: name -> (shape, dtype, cuts, layer, the grid of its picture)."""
        table, names = self.data["tensors"], self.data["names"]
        return {
            (names[name], table["output"][row]): (
                tuple(table["shapes"][table["shape"][plan][row]]),
                table["dtypes"][table["dtype"][row]][0],
                tuple(table["cutsOf"][table["cuts"][plan][row]]),
                self.data["layers"][table["layer"][row]],
                table["pictures"][table["picture"][plan][row]],
            )
            for row, name in enumerate(table["name"])
            if table["shape"][plan][row] >= 0
        }

    def operators(self, plan=0):
        """The operators of a plan: name -> (kind, splits, bytes, layer, direction)."""
        table = self.data["operators"]
        return {
            self.data["names"][name]: (
                table["kinds"][table["kind"][row]],
                tuple(table["splits"][table["split"][plan][row]]),
                table["bytes"][plan][row],
                self.data["layers"][table["layer"][row]],
                self.data["directions"][table["direction"][row]],
            )
            for row, name in enumerate(table["name"])
            if table["split"][plan][row] >= 0
        }
