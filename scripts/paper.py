"""Every table and figure of the papers: runs the scripts, and writes one page about them.

    python scripts/paper.py --output build/paper      # paper.md, paper.html, raw data, pictures
    python scripts/paper.py --smoke --output DIR      # reduced models
    python scripts/paper.py --page docs/results       # only the page, from raw data there

The page has the papers' numbers beside ours, and says of each statement of section 7 whether it
holds. `make paper` runs this; the full run takes hours of processor time.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import _soybean
from _statements import HOLDS, VERDICTS, check_statements, verdict
from _systems import to_text
from _training import progress

from tofu.tables import PAGE_STYLE, PALETTE

FOLDER = Path(__file__).resolve().parent
SCRIPTS = (
    "table1", "table2", "table3", "figure8", "figure9", "figure10", "figure11",
    "soybean", "soybean8", "soybean9", "soybean10", "tensoropt", "tensoropt7",
)  # fmt: skip
# Script -> the page that has its numbers beside the paper's, and the page's section on them.
TABLES = {
    "table1": ("table1.md", ""), "table2": ("table2.md", ""), "table3": ("systems.md", "Table 3"),
    "figure10": ("figure10.md", ""), "soybean": ("soybean.md", "Worked example"),
    "tensoropt": ("tensoropt.md", ""),
}  # fmt: skip
PAPERS = {"soybean": "SoyBean", "tensoropt": "TensorOpt"}
HEAD = "<tr><th>verdict</th><th>statement</th><th>found</th></tr>"
STYLE = """pre { overflow-x: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 5px; padding: .7rem; font: 13px/1.4 ui-monospace, monospace; }
.picture { background: #fff; border-radius: 5px; width: fit-content; max-width: 100%; }
h3 { font-size: 1rem; margin: 1.2rem 0 0; }
img { max-width: 100%; height: auto; }
h2 { font-size: 1.1rem; margin-top: 2rem; } .verdict { white-space: nowrap; font-weight: 600; }
.holds { color: var(--good); } .differs { color: var(--other); }
.not-measured, .unsaid { color: var(--faint); font-weight: 400; }
"""
WHOLE = ("table2",)  # scripts that only add up sizes: as quick without reduced models
FAILED = "failed"
_MARK = re.compile(r"\*\*(.+?)\*\*|`(.+?)`")
_LINK = re.compile(r"\[(.+?)\]\(.+?\)")
UNSAID = "says nothing"  # the verdict of reduced models on a statement
SYSTEMS = ("table3", "figure8", "figure9")  # of _systems.py
SOYBEAN = ("soybean8", "soybean9", "soybean10")  # of _soybean.py


def run_all(output: Path, names: Sequence[str], *, smoke: bool) -> dict[str, str]:
    """Run scripts; return the output of each, or the reason of its failure."""
    printed = {}
    for number in progress(len(names), "tables and figures"):
        name = names[number]
        command = [sys.executable, str(FOLDER / f"{name}.py"), "--output", str(output)]
        command += ["--smoke"] * (smoke and name not in WHOLE)
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        failed = f"{name}.py {FAILED}: {(ran.stderr.splitlines() or ['no message'])[-1]}"
        printed[name] = ran.stdout if ran.returncode == 0 else failed
        (output / f"{name}.txt").write_text(printed[name], encoding="utf-8")
    return printed


def read_texts(folder: Path) -> dict[str, str]:
    """The output of each script in an earlier run, or the table of its raw data."""
    texts = {}
    for name in SCRIPTS:
        text, raw = folder / f"{name}.txt", folder / f"{name}.json"
        if text.is_file():
            texts[name] = text.read_text(encoding="utf-8")
        elif raw.is_file() and name in SYSTEMS:
            texts[name] = to_text(json.loads(raw.read_text(encoding="utf-8")))
        elif raw.is_file() and name in SOYBEAN:
            texts[name] = _soybean.to_text(json.loads(raw.read_text(encoding="utf-8")))
        elif raw.is_file():
            texts[name] = ""
    return texts


def read_tables(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """The tables of the page about a script, in Markdown, under their headings.

    A page with a section for the script also gives the text after the table, which is the setting.
    Empty in a folder that a run has filled, which has only the scripts' output.
    """
    page, section = TABLES.get(name, ("", ""))
    if not page or not (folder / page).is_file():
        return
    text = (folder / page).read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        heading, _, rest = part.partition("\n")
        blocks = rest.split("\n\n") if section in heading else []
        tables = [k for k, block in enumerate(blocks) if block.lstrip().startswith("|")]
        if tables and not heading.startswith("# "):
            yield "heading", heading
        for k in tables:
            yield "table", blocks[k].strip()
            if section and k + 1 < len(blocks):
                yield "note", " ".join(blocks[k + 1].split())


def title_of(name: str) -> str:
    """The title of a script's result: "Table 1", "SoyBean, Figure 8"."""
    word, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    if word not in PAPERS:
        return f"{word.capitalize()} {number}"
    return f"{PAPERS[word]}, Figure {number}" if number else PAPERS[word]


def page(folder: Path, printed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The parts of the page: ("title", "statements", "text" or "picture", content)."""
    documents: dict[str, Any] = {}
    for name in SCRIPTS:
        raw = folder / f"{name}.json"
        if raw.is_file():
            documents[name] = json.loads(raw.read_text(encoding="utf-8"))
    yield "title", "The papers' tables and figures"
    reduced = any(document.get("reduced") for document in documents.values())
    about = "reduced models, which say nothing of the statements" if reduced else "the full models"
    statements = list(check_statements(documents))
    verdicts = [UNSAID if reduced else verdict(each) for _, each in statements]
    held = f"{verdicts.count(HOLDS)} of {len(statements)} statements hold"
    held = "No verdicts" if reduced else held
    lines = [f"{each}|{statement}|{why}" for each, (statement, why) in zip(verdicts, statements)]
    yield "statements", "\n".join([f"{held}. Simulated p2.8xlarge, {about}.", *lines])
    for name, text in printed.items():
        yield "title", title_of(name)
        if (folder / f"{name}.svg").is_file():
            yield "picture", f"{name}.svg"
        yield from read_tables(folder, name)
        if text:
            yield "text", text


def to_markdown(parts: Sequence[tuple[str, str]]) -> str:
    """The page as Markdown."""
    lines = []
    for kind, content in parts:
        if kind == "title":
            lines += [f"{'#' if not lines else '##'} {content}", ""]
        elif kind == "statements":
            first, *rest = content.splitlines()
            lines += [first, "", "| verdict | statement | found |", "| --- | --- | --- |"]
            lines += [*(f"| {' | '.join(line.split('|'))} |" for line in rest), ""]
        elif kind == "picture":
            lines += [f"![{content}]({content})", ""]
        elif kind == "heading":
            lines += [f"### {content}", ""]
        elif kind in ("table", "note"):
            lines += [content, ""]
        else:
            lines += ["```", content.rstrip("\n"), "```", ""]
    return "\n".join(lines)


def to_html(parts: Sequence[tuple[str, str]]) -> str:
    """The page as HTML, next to its pictures."""
    lines = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{PALETTE}{PAGE_STYLE}{STYLE}</style>",
        f"<title>{parts[0][1]}</title>",
    ]
    for kind, content in parts:
        safe = html.escape(content)
        if kind == "title":
            level = 1 if len(lines) == 3 else 2
            lines.append(f"<h{level}>{safe}</h{level}>")
        elif kind == "statements":
            first, *rest = safe.splitlines()
            lines += [f"<p>{first}</p>", '<div class="wide"><table>', HEAD]
            lines += [_verdict_row(*line.split("|")) for line in rest]
            lines.append("</table></div>")
        elif kind == "picture":
            lines.append(f'<p class="picture"><img src="{safe}" alt="{safe}"></p>')
        elif kind == "heading":
            lines.append(f"<h3>{safe}</h3>")
        elif kind == "note":
            lines.append(f"<p>{_marked(safe)}</p>")
        elif kind == "table":
            lines += ['<div class="wide"><table>', *_table_rows(safe), "</table></div>"]
        else:
            lines.append(f"<pre>{safe}</pre>")
    return "\n".join(lines) + "\n"


def _table_rows(table: str) -> Iterator[str]:
    """The rows of a table of Markdown, whose texts are HTML already."""
    split = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    head, kinds, *body = split
    sides = [" class=number" * kind.endswith(":") for kind in kinds]
    for tag, cells in [("th", head), *(("td", row) for row in body)]:
        shown = "".join(f"<{tag}{s}>{_marked(cell)}</{tag}>" for s, cell in zip(sides, cells))
        yield f"<tr>{shown}</tr>"


def _marked(text: str) -> str:
    """A text of Markdown that is HTML already, with its bold and code marked, without its links."""
    plain = _LINK.sub(lambda match: match[1], text)
    return _MARK.sub(lambda match: f"<b>{match[1] or match[2]}</b>", plain)


def _verdict_row(label: str, statement: str, why: str) -> str:
    kind = {each: each.replace(" ", "-") for each in VERDICTS}.get(label, "unsaid")
    reason = "" if why == HOLDS else why
    return f'<tr><td class="verdict {kind}">{label}</td><td>{statement}</td><td>{reason}</td></tr>'


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="reduced models")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="some scripts")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--output", type=Path, help="folder for everything")
    where.add_argument("--page", type=Path, metavar="FOLDER", help="only the page, of this folder")
    args = parser.parse_args()
    folder: Path = args.page or args.output
    if args.page is None:
        folder.mkdir(parents=True, exist_ok=True)
        printed = run_all(folder, args.only, smoke=args.smoke)
    else:
        printed = read_texts(folder)
    parts = list(page(folder, printed))
    (folder / "paper.md").write_text(to_markdown(parts), encoding="utf-8")
    (folder / "paper.html").write_text(to_html(parts), encoding="utf-8")
    print(f"written: {folder / 'paper.md'}, {folder / 'paper.html'}")
    failed = [name for name, text in printed.items() if text.startswith(f"{name}.py {FAILED}")]
    if failed:
        raise SystemExit("\n".join(printed[name] for name in failed))


if __name__ == "__main__":
    main()
