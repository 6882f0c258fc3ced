"""Raw data name the code that made them; data older than their code are found and made again."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sources(import_script):
    return import_script("_sources")


@pytest.fixture(scope="module")
def results(import_script):
    return import_script("results")


def names(sources, script):
    return {str(path.relative_to(ROOT)) for path in sources.sources_of(ROOT / script)}


def test_a_script_depends_on_what_its_imports_reach(sources):
    figure = names(sources, "scripts/figure10.py")
    assert {
        "scripts/figure10.py",
        "scripts/_figures.py",
        "python/tofu/analysis/strategy_table.py",
        "python/tofu/models/graph.py",  # imported by the package on first use
        "python/tofu/models/wresnet.py",  # named as a text, "wresnet:..."
        "tdl/convolution.py",
        "src/passes/search/recursion/recursive_search.cc",
    } <= figure
    assert not any(path.startswith("python/tofu/gluon") for path in figure)
    # tofu.enable
    assert "python/tofu/gluon/updates/trainer.py" in names(sources, "benchmarks/speed.py")
    assert "python/tofu/torch/planning.py" in names(sources, "benchmarks/torch_bytes.py") - figure


@pytest.mark.parametrize(
    ("name", "text", "same", "other"),
    [
        ("a.py", '"""Says."""\nx = "#a"\n', 'x = (  # why\n    "#a")\n', 'x = "#b"\n'),
        ("a.cc", 'f("//a"); // why\n', '/* why */ f("//a");\n', 'f("//b"); // why\n'),
    ],
)
def test_a_digest_changes_with_code_only(sources, tmp_path, monkeypatch, name, text, same, other):
    monkeypatch.setattr(sources, "ROOT", tmp_path)

    def digest(content):
        (tmp_path / name).write_text(content)
        sources._code.cache_clear()
        return sources.digest([tmp_path / name])

    assert digest(text) == digest(same) != digest(other)


def test_a_document_has_a_row_on_each_line(import_script):
    to_text = import_script("_results").to_text
    row, other = {"a": 1, "b": [1, 2]}, {"c": "x" * 500, "d": "y" * 500}
    lines = to_text({"rows": [row] * 60, "other": other, "none": []}).splitlines()
    assert lines[:3] == ["{", ' "rows": [', f"  {json.dumps(row)},"]
    assert lines[-6:-3] == [' "other": {', f'  "c": "{"x" * 500}",', f'  "d": "{"y" * 500}"']
    assert json.loads("\n".join(lines)) == {"rows": [row] * 60, "other": other, "none": []}


def test_a_result_is_stale_once_its_code_has_changed(results, import_script, tmp_path, monkeypatch):
    import_script("_results").write_json(tmp_path / "table2.json", {"rows": []})
    import_script("_results").write_json(tmp_path / "nobodys.json", {"rows": []})
    assert json.loads((tmp_path / "nobodys.json").read_text()) == {"rows": []}
    (result,) = results.read_results(tmp_path)
    assert result.made["by"] == "scripts/table2.py" and result.values == {"rows": []}
    assert not result.is_stale
    assert "current" in results.to_text([result])
    monkeypatch.setattr(results, "digest", lambda paths: "another")
    assert result.is_stale
    assert "stale" in results.to_text([result])


def test_results_are_made_again(results, tmp_path, capsys):
    writes = "import pathlib, sys; pathlib.Path(sys.argv[2], 'good.json').write_text('{}')"
    (tmp_path / "good.py").write_text(writes)
    (tmp_path / "bad.py").write_text("raise SystemExit('no such thing')")
    made = [results.Result(name, tmp_path / f"{name}.py", {}, {}) for name in ("good", "bad")]
    for each in made:
        assert each.command[:3] == [sys.executable, str(each.script), "--output"]
    results.RESULTS, before = tmp_path, results.RESULTS
    try:
        assert results.make(made) == ["bad"]
    finally:
        results.RESULTS = before
    assert "failed: no such thing" in capsys.readouterr().out
    assert (tmp_path / "good.json").read_text() == "{}"


def test_what_changed_is_told_but_not_circumstances(results):
    def result(total, seconds):
        values = {
            "context": {"cores": seconds},
            "rows": [{"bytes": total, "search_seconds": seconds}],
        }
        return results.Result("figure10", Path("figure10.py"), {}, values)

    assert results.changed([result(1, 2.0)], [result(1, 3.0)]) == []
    assert results.changed([result(1, 2.0)], [result(2, 2.0)]) == ["figure10"]
    assert "docs/results/figure10.md" in results.pages_of("figure10")


def test_committed_results_are_made_by_a_script(results):
    made = {each.name for each in results.read_results()}
    assert made == {path.stem for path in results.RESULTS.glob("*.json")}
    assert set(results.TIMED) <= made
