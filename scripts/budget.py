"""Fails if the product, its tests or one of its folders is larger than its limit.

    python scripts/budget.py

All lines of all files count. Of a folder, those of its subfolders do not. Whoever raises a limit
here says why in the commit that does so.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES = {"python/tofu src tdl": 106_000, "tests": 82_500}
# Of each folder of the product, except those with a file for each family of operators.
FOLDER_FILES, FOLDER_LINES = 30, 4_000
EXCEPT = ("tdl",)
WHAT_TO_DO = (
    "remove what does nothing, split the folder by what its files import, or raise the limit in "
    "scripts/budget.py: a commit that raises a limit says why"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """How many files there are, and how many lines they have together."""

    files: int = 0
    lines: int = 0

    def __add__(self, other: Size) -> Size:
        """Both together."""
        return Size(self.files + other.files, self.lines + other.lines)


def folders_below(root: Path, top: str) -> dict[str, Size]:
    """The folders in a folder of the repository, each without its subfolders; itself, too."""
    found: dict[str, Size] = {}
    for path in (root / top).rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.parent.relative_to(root).as_posix()
            found[name] = found.get(name, Size()) + Size(1, path.read_bytes().count(b"\n"))
    return found


def too_large(root: Path) -> list[str]:
    """What exceeds its limit, with both numbers."""
    found = []
    for tops, limit in LINES.items():
        folders = [size for top in tops.split() for size in folders_below(root, top).values()]
        lines = sum(folders, Size()).lines
        if lines > limit:
            found.append(f"{' + '.join(tops.split())} ({lines:,} lines; at most {limit:,})")
    product, *_ = LINES
    for top in product.split():
        for name, size in sorted(folders_below(root, top).items()):
            if size.files > FOLDER_FILES and name not in EXCEPT:
                found.append(f"{name} ({size.files} files; at most {FOLDER_FILES})")
            if size.lines > FOLDER_LINES and name not in EXCEPT:
                found.append(f"{name} ({size.lines:,} lines; at most {FOLDER_LINES:,})")
    return found


def main() -> None:
    """End with exit status 1 and a sentence if something is too large."""
    found = too_large(ROOT)
    if found:
        raise SystemExit(f"too large: {', '.join(found)}; {WHAT_TO_DO}")


if __name__ == "__main__":
    main()
