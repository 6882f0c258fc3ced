"""Rewrites matplotlib's SVG files for people and for version control: fewer and shorter lines.

matplotlib writes an element for every bar, a group around every element and a line for every point.
Here neighbours of one style become one path, a path is one line, and groups that only carry a name
go. The picture stays the same but for coordinates, which are rounded to a hundredth of a point.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

__all__ = ["compact"]

SVG = "http://www.w3.org/2000/svg"
LINK = "http://www.w3.org/1999/xlink"
_POSITIONS = ("d", "x", "y", "width", "height", "points")  # attributes of lengths in points
_LONG = re.compile(r"-?\d+\.\d{3,}")


def compact(text: str) -> str:
    """Rewrite a picture in fewer lines.

    Args:
        text: an SVG file of matplotlib.
    """
    root = ET.fromstring(text)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", LINK)
    _flatten(root)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', *_lines(root, "")]
    return "\n".join(lines) + "\n"


def _flatten(parent: ET.Element) -> None:
    """Round all elements under `parent`, open groups that only have a name, and join neighbours."""
    children: list[ET.Element] = []
    for child in parent:
        for name in _POSITIONS:
            if name in child.attrib:
                child.set(name, _LONG.sub(_rounded, " ".join(child.attrib[name].split())))
        _flatten(child)
        is_named_only = child.tag == f"{{{SVG}}}g" and set(child.attrib) <= {"id"}
        for element in child if is_named_only else (child,):
            if children and _are_joined(children[-1], element):
                children[-1].set("d", f"{children[-1].get('d')} {element.get('d')}")
            else:
                children.append(element)
    parent[:] = children


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")


def _are_joined(before: ET.Element, after: ET.Element) -> bool:
    """Whether two elements are paths of one opaque style, which one path can draw."""
    is_path = before.tag == after.tag == f"{{{SVG}}}path"
    styles = [{k: v for k, v in each.attrib.items() if k != "d"} for each in (before, after)]
    is_opaque = "opacity" not in styles[0].get("style", "")
    return is_path and "id" not in styles[0] and styles[0] == styles[1] and is_opaque


def _lines(element: ET.Element, indent: str) -> Iterator[str]:
    """An element's lines: one if it has text or no children."""
    if element.tag.endswith("}text") or not len(element):
        yield indent + _in_one_line(element)
        return
    opened, closed = _tags(element)
    yield indent + opened
    for child in element:
        yield from _lines(child, indent + " ")
    yield indent + closed


def _in_one_line(element: ET.Element) -> str:
    element.tail = None
    return (
        ET.tostring(element, encoding="unicode")
        .replace(f' xmlns="{SVG}"', "")
        .replace(f' xmlns:xlink="{LINK}"', "")
    )


def _tags(element: ET.Element) -> tuple[str, str]:
    name = element.tag.rpartition("}")[2]
    attributes = "".join(
        f" {key.replace(f'{{{LINK}}}', 'xlink:')}={quoteattr(value)}"
        for key, value in element.attrib.items()
    )
    spaces = f' xmlns="{SVG}" xmlns:xlink="{LINK}"' if name == "svg" else ""
    return f"<{name}{spaces}{attributes}>", f"</{name}>"
