"""The passes through tofu._core: a training graph stays in C++ until MXNet binds it."""

import json
import math
import threading

import pytest

from tofu import _core
from tofu.dtypes import dtype_bytes
from tofu.errors import GraphError, PlanError, TofuError

from . import documents

GRAPH = json.dumps(documents.graph())
TABLE = json.dumps(documents.table())


def _table(graph=GRAPH, table=TABLE):
    return _core.StrategyTable(table, _core.Graph(graph))


def _plan(workers=4, **options):
    return _core.plan(_table(), workers=workers, **options)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 8])
def test_plan_counts_what_partition_fetches(workers):
    plan = _plan(workers)
    divided = _core.partition(plan, small_bytes=0)  # small tensors would be relayed
    assert divided.workers == plan.workers == workers
    assert divided.fetched_bytes == plan.total_bytes
    assert divided.fetched_bytes == sum(divided.fetched_bytes_per_worker)
    tiles = {name: tiles for name, _, _, _, tiles in divided.variables}
    assert len(tiles["w"]) == workers


@pytest.mark.parametrize("workers", [2, 3, 6])
def test_regions_say_what_fetches_read(workers):
    plan = _plan(workers)
    how = {"fetch": "multifetch", "crossing": "tiles"}
    apart, bundled = (_core.partition(plan, bundle=bundle, **how) for bundle in (False, True))
    for divided in (apart, bundled):
        nodes, fetched = divided.graph.nodes, 0
        for node, worker in zip(nodes, divided.node_workers):
            regions = node.regions
            assert bool(regions) == (node.op == "_tofu_multifetch")
            assert divided is bundled or len(regions) <= 1
            for (_, flag), (reduction, terms, _, pieces) in zip(node.outputs, regions):
                assert reduction == "sum" and terms in (1, workers)
                for source, term, start, to, extents in pieces:
                    assert 0 <= term < terms
                    held, _ = node.sources[source]
                    shape, _ = node.inputs[source]
                    assert all(a + n <= size for a, n, size in zip(start, extents, shape))
                    assert len(to) == len(extents)
                    crosses = divided.node_workers[held] != worker
                    fetched += crosses * math.prod(extents) * dtype_bytes(flag)
        assert fetched == divided.fetched_bytes > 0


def test_every_node_names_its_worker():
    graph = _core.partition(_plan()).graph
    assert set(graph.contexts) == {"worker0", "worker1", "worker2", "worker3"}
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)


def test_phases_join_at_what_is_saved():
    step = _core.schedule(_core.partition(_plan(2)))
    assert step.workers == 2
    assert not step.is_joint
    _, backward = step.graphs
    variables = {name for name, _ in backward.variables}
    saved = {name for name, _ in step.saved}
    assert saved
    assert saved <= variables
    assert variables - saved == {"g@0", "g@1"}
    assert [role for role, *_ in step.backward_heads] == ["gradient:w"]
    assert [role for role, *_ in step.forward_heads] == ["output"]


def test_a_joint_step_is_one_graph():
    step = _core.schedule(_core.partition(_plan(2)), joint=True)
    assert step.is_joint
    assert len(step.graphs) == 1
    assert 0 < step.forward_nodes < step.nodes
    assert step.saved == []


def _joint(table):
    plan = _core.plan(_table(table=json.dumps(table)), workers=2)
    return _core.schedule(_core.partition(plan), joint=True)


def test_a_step_whose_forward_cannot_run_twice_is_apart():
    table = documents.table()
    bare = {**table, "nodes": [-1] * len(table["nodes"])}
    drawn = {**table, "rows": [{**row, "random": True} for row in table["rows"]]}
    assert [_joint(each).is_joint for each in (table, bare, drawn)] == [True, False, False]


def test_random_numbers_that_need_no_input_have_a_graph_of_their_own():
    graph = documents.graph()
    names = [node["name"] for node in graph["nodes"]]
    assert names[:3] == ["x", "w", "g"]
    graph["nodes"][0] = {"op": "_random_normal", "name": "x", "inputs": []}
    graph["arg_nodes"].remove(0)
    table = documents.table()
    table["nodes"][0] = len(table["rows"])
    table["rows"].append(documents.drawing_row())
    plan = _core.plan(_table(json.dumps(graph), json.dumps(table)), workers=2)
    step = _core.schedule(_core.partition(plan), joint=True)
    assert step.is_joint
    draws, both = step.graphs
    assert [node.op for node in draws.nodes] == ["_random_normal"] * 2 + ["_zeros"]
    saved = {name for name, _ in step.saved}
    assert saved == {"x@0/drawn0", "x@1/drawn0"}
    assert saved < {name for name, _ in both.variables}
    assert "_random_normal" not in {node.op for node in both.nodes}


def test_only_outputs_have_no_backward():
    step = _core.schedule(_core.partition(_plan(), heads=["output"]), joint=True)
    assert step.backward_heads == []
    assert len(step.graphs) == 1


def test_graphs_outlive_what_they_came_from():
    graphs = _core.schedule(_core.partition(_plan(2))).graphs
    nodes = graphs[0].nodes
    del graphs
    assert {node.name.partition("@")[2] for node in nodes} >= {"0", "1"}


def test_pins_are_kept():
    plan = _plan(4, pins={"w": [1, 0]})
    assert plan.cuts("w") == [1, 0]
    cuts = {tensor["node"]: tensor["cuts"] for tensor in json.loads(plan.to_json())["tensors"]}
    assert cuts["w"] == [1, 0]


def test_a_plan_survives_being_written_and_read():
    plan = _plan(4)
    again = _core.Plan(plan.to_json(), _table())
    assert json.loads(again.to_json()) == json.loads(plan.to_json())


def test_nodes_tell_what_they_compute():
    graph = _core.Graph(GRAPH)
    document = documents.graph()
    assert [node.name for node in graph.nodes] == [node["name"] for node in document["nodes"]]
    assert graph.head_roles == document["attrs"]["tofu_heads"][1]
    product = next(node for node in graph.nodes if node.name == "dw")
    assert product.op == "elemwise_mul"
    assert len(product.inputs) == 2
    assert product.outputs == [product.inputs[0]]
    assert [node.name for node in graph.nodes_of({"elemwise_mul"})] == [
        node.name for node in graph.nodes if node.op == "elemwise_mul"
    ]
    assert json.loads(graph.to_json()) == json.loads(_core.Graph(graph.to_json()).to_json())
    assert set(json.loads(graph.to_symbol_json())["attrs"]) == {"mxnet_version"}


def test_a_table_knows_what_it_lacks():
    table = documents.table()
    assert _table().undescribed == []
    ops = {node["op"] for node in documents.graph()["nodes"]} - {"null"}
    bare = {**table, "nodes": [-1] * len(table["nodes"])}
    assert set(_table(table=json.dumps(bare)).undescribed) == ops


def test_on_pass_sees_every_pass():
    dumps = {}
    plan = _plan(2, on_pass=dumps.__setitem__)
    divided = _core.partition(plan, on_pass=dumps.__setitem__)
    _core.schedule(divided, on_pass=dumps.__setitem__)
    assert {"group", "coalesce", "plan", "partition", "phases"} <= set(dumps)
    assert "dw@1  elemwise_mul  worker1  float32[" in dumps["partition"]
    assert dumps["phases"].startswith("forward\n")


def test_an_error_in_on_pass_comes_through():
    def on_pass(name, dump):
        raise KeyError(name)

    with pytest.raises(KeyError, match="group"):
        _plan(2, on_pass=on_pass)
    with pytest.raises(KeyError, match="partition"):
        _core.partition(_plan(2), on_pass=on_pass)
    with pytest.raises(KeyError, match="phases"):
        _core.schedule(_core.partition(_plan(2)), on_pass=on_pass)


def test_threads_plan_at_the_same_time():
    expected = _plan(8).total_bytes
    found = []

    def run():
        for _ in range(40):
            found.append(_plan(8, on_pass=lambda name, dump: None).total_bytes)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 160


def test_graph_hash_tells_graphs_apart():
    other = documents.graph()
    other["nodes"][3]["name"] = "z"
    own = _core.Graph(GRAPH).hash
    assert len(own) == 16
    assert own == _core.Graph(json.dumps(documents.graph(), indent=2)).hash
    assert own != _core.Graph(json.dumps(other)).hash


def test_table_version_is_that_of_the_documents():
    assert _core.expected_table_version == documents.table()["version"]


# --- errors: class by blame, text by place ----------------------------------------------


def test_errors_name_the_document_at_fault():
    plan = _plan(2)
    with pytest.raises(GraphError, match="graph: found 5 bytes that are not JSON"):
        _core.Graph("{nope")
    with pytest.raises(GraphError, match=r"strategy table: .*rows"):
        _table(table=TABLE.replace('"rows"', '"lines"'))
    with pytest.raises(PlanError, match="the plan is for another graph"):
        _core.Plan(plan.to_json(), _table(GRAPH.replace('"dw"', '"other"')))
    with pytest.raises(PlanError, match="workers"):
        _plan(0)
    with pytest.raises(PlanError, match='found the objective "distance"'):
        _plan(objective="distance")
    with pytest.raises(PlanError, match="mode"):
        _plan(2, mode="fastest")
    with pytest.raises(PlanError, match="found no tensor v, expected a name of the graph"):
        plan.cuts("v")
    with pytest.raises(GraphError, match='no head of the graph has the role "gradient:v"'):
        _core.partition(plan, heads=["gradient:v"])
    with pytest.raises(PlanError, match='found fetch "fast", expected "plain" or "multifetch"'):
        _core.partition(plan, fetch="fast")


def test_errors_are_also_tofu_errors_and_value_errors():
    with pytest.raises(TofuError):
        _core.Graph("[]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        _core.Graph("[]")


def test_wrong_types_are_type_errors():
    with pytest.raises(TypeError):
        _core.plan(_table())
    with pytest.raises(TypeError):
        _core.plan(_table(), 2)
    with pytest.raises(TypeError):
        _core.plan(GRAPH, workers=2)
    with pytest.raises(TypeError):
        _core.partition(_plan(2), on_pass=3)


def test_names_may_be_any_text():
    graph = documents.graph()
    graph["nodes"][3]["name"] = 'Ünïcode "quoted" \U0001f9c0\n'
    divided = _core.partition(_core.plan(_table(json.dumps(graph)), workers=2))
    names = [node.name for node in divided.graph.nodes]
    assert 'Ünïcode "quoted" \U0001f9c0\n@1' in names


def test_a_step_takes_the_graph_or_copies_it():
    divided = _core.partition(_plan(2))
    kept = _core.schedule(divided)
    assert divided.graph.nodes
    fetched, sizes = divided.fetched_bytes, divided.bytes_per_worker
    taken = _core.schedule(divided, take=True)
    assert [g.to_json() for g in taken.graphs] == [g.to_json() for g in kept.graphs]
    assert not divided.graph.nodes
    assert divided.fetched_bytes == fetched and any(sizes)


def test_operators_that_nothing_reads_may_be_cut_apart():
    """Such operators do not run, and are alike whatever they read."""
    graph, table = documents.graph(), documents.table()
    for name, source in (("of_x", 0), ("of_w", 1)):
        inputs = [[source, 0, 0], [source, 0, 0]]
        graph["nodes"].append({"op": "elemwise_mul", "name": name, "inputs": inputs})
        graph["node_row_ptr"].append(graph["node_row_ptr"][-1] + 1)
        graph["attrs"]["shape"][1].append([8, 8])
        graph["attrs"]["dtype"][1].append(0)
        table["nodes"].append(1)
    made = _table(json.dumps(graph), json.dumps(table))
    plan = _core.plan(made, workers=4, pins={"x": [0, 0], "w": [1, 1]})
    splits = {name: splits for name, _, splits, _ in plan.operators}
    assert splits["of_x"] != splits["of_w"]
    assert _core.partition(plan).fetched_bytes == plan.total_bytes
