"""Plan files: saving, finding plans again, and errors."""

import json

import pytest

pytest.importorskip("mxnet")

from tofu import models
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError
from tofu.planner.search import plan_graph
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans import file as plan_file


def problem(batch=8, workers=2):
    graph = models.build("mlp", batch, reduced=True).training_graph()
    return Problem("mlp", strategy_table(graph)[0], workers)


@pytest.fixture(scope="module")
def mlp():
    return problem()


@pytest.fixture(scope="module")
def plan(mlp):
    return plan_graph(mlp)


@pytest.fixture
def saved(plan, tmp_path):
    path = tmp_path / "mlp.plan"
    plan_file.save(path, plan)
    return path


def test_a_plan_comes_back_as_it_was(mlp, plan, saved):
    found = plan_file.read(saved).plan_for(mlp.table, 2)
    document = json.loads(plan.to_json())
    for name in plan.notes:  # notes of tofu plan, which the passes do not keep
        del document[name]
    assert json.loads(found.to_json()) == document


def test_a_file_is_small_text(plan, saved):
    text = saved.read_text(encoding="utf-8")
    assert text.startswith('{"format": "tofu-plan-file", "version": 1, "sha256": "')
    assert len(text) < len(plan.to_json()) / 3


def test_another_graph_has_no_plan(saved):
    file = plan_file.read(saved)
    assert file.plan_for(problem(batch=16).table, 2) is None
    assert file.plan_for(problem().table, 4) is None


def test_plans_of_several_graphs_are_kept_beside_each_other(mlp, plan, saved):
    other = problem(batch=16, workers=4)
    plan_file.save(saved, plan_graph(other))
    pinned = plan_graph(mlp, SearchOptions(pins=(("mlp_dense0_weight", (1,)),)))
    plan_file.save(saved, pinned)  # in place of the earlier plan of the same graph
    file = plan_file.read(saved)
    assert file.workers == (2, 4)
    found = Plan.from_json(file.plan_for(mlp.table, 2).to_json())
    assert found.tensors == pinned.tensors
    assert found.operators == pinned.operators
    assert file.plan_for(other.table, 4) is not None
    assert len(file.plans) == 2


def test_a_worker_count_without_a_plan_is_refused(saved):
    with pytest.raises(ConfigError, match="a plan for 2 workers, but this run has 4; set TOFU_WOR"):
        plan_file.read(saved).check_workers(4)
    plan_file.read(saved).check_workers(2)


def change(text, **changes):
    return json.dumps({**json.loads(text), **changes})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda text: text[: len(text) // 2], "not a plan file, or cut off", id="cut"),
        pytest.param(lambda text: "", "not a plan file, or cut off", id="empty"),
        pytest.param(lambda text: "[]", 'no "format": "tofu-plan-file"', id="list"),
        pytest.param(lambda text: '{"nodes": []}', "not a plan file", id="foreign"),
        pytest.param(lambda text: change(text, version=9), "version 9 of the format", id="version"),
        pytest.param(lambda text: change(text, plans=[]), "checksum does not match", id="none"),
        pytest.param(
            lambda text: text.replace('"workers":2', '"workers":3'), "checksum", id="changed"
        ),
    ],
)
def test_a_file_that_is_none_is_refused(saved, damage, message):
    saved.write_text(damage(saved.read_text()))
    with pytest.raises(ConfigError, match=message) as error:
        plan_file.read(saved)
    assert str(error.value).startswith(str(saved))
    assert "tofu plan --save" in str(error.value)


def test_binary_and_absent_files_are_refused(tmp_path):
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="not a plan file"):
        plan_file.read(tmp_path / "binary")
    with pytest.raises(ConfigError, match=r"cannot be read .No such file"):
        plan_file.read(tmp_path / "absent")


@pytest.mark.parametrize("plan", [{}, {"plan": {}}, {"plan": {"format": "tofu-plan"}}])
def test_a_damaged_plan_of_a_module_is_refused(tmp_path, plan):
    path = tmp_path / "module.json"
    path.write_text(json.dumps({"format": plan_file.MODULE_FORMAT, **plan}))
    with pytest.raises(ConfigError, match="damaged") as error:
        plan_file.read_saved(path)
    assert str(error.value).startswith(str(path))


def test_other_files_are_not_overwritten(plan, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print()")
    with pytest.raises(ConfigError, match=r"train.py: exists and is not a plan file"):
        plan_file.save(script, plan)
    assert script.read_text() == "print()"


def test_a_place_that_cannot_be_written(plan, tmp_path):
    with pytest.raises(ConfigError, match=r"--save .*cannot be written"):
        plan_file.save(tmp_path / "absent" / "mlp.plan", plan)


def test_a_plan_that_is_not_of_its_graph_is_refused(mlp, saved, monkeypatch):
    document = json.loads(saved.read_text())
    del document["plans"][0]["nodes_alike"][-1]
    monkeypatch.setattr(plan_file, "_digest", lambda plans: document["sha256"])
    saved.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"damaged .*nodes"):
        plan_file.read(saved).plan_for(mlp.table, 2)


def test_a_plan_can_be_read_without_its_graph(mlp, plan, saved):
    plan_file.save(saved, plan, mlp.graph)
    (found,) = plan_file.read(saved).read_plans()
    assert (found.tensors, found.operators) == (plan.tensors, plan.operators)
    assert (found.model, found.workers, found.total_bytes) == ("mlp", 2, plan.total_bytes)
    used = plan_file.read(saved).plan_for(mlp.table, 2)
    assert Plan.from_json(used.to_json()).tensors == plan.tensors


def test_a_plan_without_its_nodes_is_used_but_not_shown(mlp, saved):
    assert plan_file.read(saved).plan_for(mlp.table, 2) is not None
    with pytest.raises(ConfigError, match="saved by an earlier tofu, without the names of its"):
        plan_file.read(saved).read_plans()
    assert plan_file.read(saved).difference(mlp.graph) == ""


def test_the_tensor_that_differs_is_named(mlp, plan, saved):
    plan_file.save(saved, plan, mlp.graph)
    plan_file.save(saved, plan_graph(problem(workers=4, batch=32)), problem(batch=32).graph)
    file = plan_file.read(saved)
    assert file.difference(problem(batch=16).graph) == (
        "the plan's graph has data (8x24 of float32) where this one has data (16x24 of float32)"
    )
    longer = models.build("mlp", 8, reduced=True).training_graph(optimizer="sgd_mom")
    assert " where this one has mlp_" in file.difference(longer)
    shorter = models.build("mlp", 8, reduced=True).training_graph(optimizer=None)
    assert file.difference(shorter).startswith("only the plan's graph has mlp_")


def test_a_link_that_waits_is_not_followed(plan, tmp_path):
    """Saving used to write PLAN.part, through a link that someone else had put there."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for name in ("mlp.plan.part", ".mlp.plan.part"):
        (tmp_path / name).symlink_to(victim)
    plan_file.save(tmp_path / "mlp.plan", plan)
    assert victim.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".mlp.plan.part", "mlp.plan", "mlp.plan.part", "victim",
    ]  # fmt: skip


def test_a_saved_file_has_the_rights_of_any_other(plan, tmp_path):
    (tmp_path / "other").write_text("")
    path = tmp_path / "mlp.plan"
    plan_file.save(path, plan)
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    path.chmod(0o640)
    plan_file.save(path, plan)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_leaves_nothing(plan, tmp_path, monkeypatch):
    def refuse(old, new):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan_file.os, "replace", refuse)
    with pytest.raises(ConfigError, match=r"mlp.plan: cannot be written .No space left"):
        plan_file.save(tmp_path / "mlp.plan", plan)
    assert list(tmp_path.iterdir()) == []
