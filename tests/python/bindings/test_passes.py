"""The passes through tofu._core: texts in, texts out."""

import json
import threading

import pytest

from tofu import _core
from tofu.errors import GraphError, PlanError, TofuError

from . import documents

GRAPH = json.dumps(documents.graph())
TABLE = json.dumps(documents.table())


def _plan(workers=4, **options):
    return _core.plan(GRAPH, TABLE, workers=workers, **options)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 8])
def test_plan_counts_what_partition_fetches(workers):
    plan = _plan(workers)
    divided = json.loads(_core.partition(GRAPH, TABLE, plan))
    assert divided["workers"] == workers
    assert divided["fetched_bytes"] == json.loads(plan)["total_bytes"]
    assert divided["fetched_bytes"] == sum(divided["fetched_bytes_per_worker"])
    assert len(divided["variables"]["w"]["tiles"]) == workers


def test_every_node_names_its_worker():
    nodes = json.loads(_core.partition(GRAPH, TABLE, _plan()))["graph"]["nodes"]
    groups = {node["attrs"]["__ctx_group__"] for node in nodes}
    assert groups == {"worker0", "worker1", "worker2", "worker3"}
    assert len({node["name"] for node in nodes}) == len(nodes)


def test_phases_join_at_what_is_saved():
    divided = _core.partition(GRAPH, TABLE, _plan(2))
    phases = json.loads(_core.phases(divided))
    assert (phases["format"], phases["version"], phases["workers"]) == ("tofu-phases", 1, 2)
    assert phases["variables"] == json.loads(divided)["variables"]
    variables = {
        node["name"] for node in phases["backward"]["graph"]["nodes"] if node["op"] == "null"
    }
    saved = {each["name"] for each in phases["saved"]}
    assert saved
    assert saved <= variables
    assert variables - saved == {"g@0", "g@1"}
    assert [head["role"] for head in phases["backward"]["heads"]] == ["gradient:w"]


def test_only_outputs_have_no_backward():
    divided = _core.partition(GRAPH, TABLE, _plan(), heads=["output"])
    assert json.loads(_core.phases(divided))["backward"] is None


def test_pins_are_kept():
    plan = json.loads(_plan(4, pins={"w": [1, 0]}))
    cuts = {tensor["node"]: tensor["cuts"] for tensor in plan["tensors"]}
    assert cuts["w"] == [1, 0]


def test_on_pass_sees_every_pass():
    dumps = {}
    plan = _plan(2, on_pass=dumps.__setitem__)
    divided = _core.partition(GRAPH, TABLE, plan, on_pass=dumps.__setitem__)
    _core.phases(divided, on_pass=dumps.__setitem__)
    assert {"group", "coalesce", "plan", "partition", "phases"} <= set(dumps)
    assert "dw@1  elemwise_mul  worker1  float32[" in dumps["partition"]
    assert dumps["phases"].startswith("forward\n")


def test_an_error_in_on_pass_comes_through():
    def on_pass(name, dump):
        raise KeyError(name)

    with pytest.raises(KeyError, match="group"):
        _plan(2, on_pass=on_pass)
    with pytest.raises(KeyError, match="partition"):
        _core.partition(GRAPH, TABLE, _plan(2), on_pass=on_pass)


def test_threads_plan_beside_each_other():
    expected = json.loads(_plan(8))["total_bytes"]
    found = []

    def run():
        for _ in range(5):
            found.append(json.loads(_plan(8, on_pass=lambda name, dump: None))["total_bytes"])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


def test_graph_hash_tells_graphs_apart():
    other = documents.graph()
    other["nodes"][3]["name"] = "z"
    assert len(_core.graph_hash(GRAPH)) == 16
    assert _core.graph_hash(GRAPH) == _core.graph_hash(json.dumps(documents.graph(), indent=2))
    assert _core.graph_hash(GRAPH) != _core.graph_hash(json.dumps(other))


def test_table_version_is_that_of_the_documents():
    assert _core.expected_table_version == documents.table()["version"]


# --- errors: class by blame, text by place ----------------------------------------------


def test_errors_name_the_document_at_fault():
    plan = _plan(2)
    with pytest.raises(GraphError, match="graph: found 5 bytes that are not JSON"):
        _core.plan("{nope", TABLE, workers=2)
    with pytest.raises(GraphError, match=r"strategy table: .*rows"):
        _core.plan(GRAPH, TABLE.replace('"rows"', '"lines"'), workers=2)
    with pytest.raises(PlanError, match="the plan is of another graph"):
        _core.partition(GRAPH.replace('"dw"', '"other"'), TABLE, plan)
    with pytest.raises(PlanError, match="workers"):
        _plan(0)
    with pytest.raises(PlanError, match="mode"):
        _plan(2, mode="fastest")
    with pytest.raises(GraphError, match='no head of the graph has the role "gradient:v"'):
        _core.partition(GRAPH, TABLE, plan, heads=["gradient:v"])
    with pytest.raises(PlanError, match='found fetch "fast", expected "plain" or "multifetch"'):
        _core.partition(GRAPH, TABLE, plan, fetch="fast")
    with pytest.raises(GraphError, match=r'partitioned graph: .*"format"'):
        _core.phases("{}")


def test_errors_are_also_tofu_errors_and_value_errors():
    with pytest.raises(TofuError):
        _core.graph_hash("[]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        _core.graph_hash("[]")


def test_wrong_types_are_type_errors():
    with pytest.raises(TypeError):
        _core.plan(GRAPH, TABLE)
    with pytest.raises(TypeError):
        _core.plan(GRAPH, TABLE, 2)
    with pytest.raises(TypeError):
        _core.partition(GRAPH, TABLE, _plan(2), on_pass=3)


def test_names_may_be_any_text():
    graph = documents.graph()
    graph["nodes"][3]["name"] = 'Ünïcode "quoted" \U0001f9c0\n'
    text = json.dumps(graph)
    divided = json.loads(_core.partition(text, TABLE, _core.plan(text, TABLE, workers=2)))
    names = [node["name"] for node in divided["graph"]["nodes"]]
    assert 'Ünïcode "quoted" \U0001f9c0\n@1' in names
