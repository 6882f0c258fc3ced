"""Table 2 of the paper."""

import pytest


@pytest.fixture(scope="module")
def table2(import_script):
    return import_script("table2")


@pytest.fixture(scope="module")
def rows(table2):
    return {row["model"]: row for row in table2.to_json(list(table2.table()))["rows"]}


def test_sizes_are_the_papers(rows):
    assert len(rows) == 21
    apart = {name for name, row in rows.items() if abs(row["difference"]) > 0.0201}
    assert apart == {"rnn-8-6k"}


def test_sizes_rounded_as_the_paper_rounds_are_equal_but_for_three(rows):
    apart = {name for name, row in rows.items() if row["rounded_gib"] != row["paper_gib"]}
    assert apart == {"rnn-8-6k", "rnn-8-8k", "wresnet-50-10"}


def test_one_typo_is_in_the_paper(table2):
    # Equal layers add equal amounts, and 28.5 is not between 18.6 and 32.1.
    six, eight, ten = (table2.PAPER["rnn"][layers][1] for layers in (6, 8, 10))
    assert abs(eight - (six + ten) / 2) > 3


def test_the_text_has_a_line_for_each_model(table2):
    row = table2.Row("rnn-6-4k", paper_gib=8.4, ours_gib=8.25)
    text = table2.to_text([row])
    assert text.splitlines()[1].split() == ["rnn-6-4k", "8.4", "8.25", "8.4", "-1.8%"]
