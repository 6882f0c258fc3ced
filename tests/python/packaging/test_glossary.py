"""The glossary defines every word that a module is named after, unless it is an ordinary one."""

import re
from pathlib import Path
from pydoc_data.topics import topics

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUFFIXES = {".py", ".h", ".cc", ".js"}
PRODUCTS = "aten autograd cuda dtypes gluon gpu linalg mx mxnet nnvm numpy nvrtc sha256 torch"
LEARNING = (
    "attention batch convolution deconvolution dimension elementwise embedding gradient image mlp"
    " norm optimizer recurrent rnn sampling shape softmax trainer transformer vision wresnet"
)
COMPUTING = (
    "backend branch broadcast checkpoint cli cluster config deadline deps device driver executor"
    " fused installation interrupt interruptible ir json kernel lang link merge node op parallelize"
    " pool profile registry remote render server statistics status subprocess uncaught vector"
    " worklist"
)
ENGLISH = (
    "ascent calibrate choose combine decomposition distributed draw eliminate estimate"
    " exchange explain explore export fit greedy half isolated label layout measure memo movement"
    " page picture plan predict price progress quantized reduce reorder report resize role safe"
    " short simulate solve suggest teach timeline transfer verify"
)


def words(text):
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def glossary_words():
    """The words of the glossary's first column."""
    rows = re.findall(
        r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M
    )
    return words(" ".join(rows))


def forms(word):
    """The word itself, and all words of which it may be a plural or an inflected form."""
    stems = {word}
    for ending, replacements in {
        "s": ("",),
        "es": ("",),
        "ies": ("y",),
        "ed": ("", "e"),
        "ing": ("", "e"),
        "er": ("", "e"),
        "r": ("",),
        "ner": ("",),
        "ning": ("",),
        "ation": ("e",),
        "ion": ("", "e"),
    }.items():
        if word.endswith(ending):
            stems |= {word[: -len(ending)] + replacement for replacement in replacements}
    return stems


def module_words():
    """{word: a file whose name, or folder's name, has it}."""
    named = {}
    for folder in ("python/tofu", "src", "tdl"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                for word in words(" ".join(parts).replace("_", " ")):
                    named.setdefault(word, path.relative_to(ROOT).as_posix())
    return named


# The language's own reference is the dictionary of ordinary words.
ORDINARY = words(" ".join([*topics.values(), PRODUCTS, LEARNING, COMPUTING, ENGLISH]))


def test_glossary_has_every_word_that_a_module_is_named_after():
    known = ORDINARY | glossary_words()
    unknown = {word: path for word, path in module_words().items() if not forms(word) & known}
    assert not unknown, "define these words in docs/glossary.md"


@pytest.mark.parametrize("text", [PRODUCTS, LEARNING, COMPUTING, ENGLISH])
def test_ordinary_words_are_those_of_modules(text):
    named = set().union(*map(forms, module_words()))
    assert not words(text) - named
