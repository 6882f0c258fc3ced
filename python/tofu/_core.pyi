"""The graph passes in C++, and CUDA kernels.

Graph, table, plan and partitioned graph stay in C++ from the training graph to what MXNet
binds; texts are for files, for people and for MXNet (docs/formats.md).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, final

expected_table_version: int
search_modes: list[str]
max_workers: int

_Shape = tuple[int, ...]
_OnPass = Callable[[str, str], None]
# (name, role, shape, dtype, [(tile's name, begin, end) of each worker])
_Variable = tuple[str, str, _Shape, str, list[tuple[str, _Shape, _Shape]]]
# (role, shape, dtype, [(head's number, begin, end) of each worker])
_Head = tuple[str, _Shape, str, list[tuple[int, _Shape, _Shape]]]
# (input or -1 for the fill, term, corner in the input, corner in the region, extents)
_Piece = tuple[int, int, _Shape, _Shape, _Shape]
# (reduction of the terms, their number, fill, pieces)
_Region = tuple[str, int, float, list[_Piece]]
# (node, output, shape, type flag, the dimension that each step cuts or -1)
_TensorRow = tuple[str, int, _Shape, int, tuple[int, ...]]
# (node, operator, the variable that each step splits or None, bytes)
_OperatorRow = tuple[str, str, tuple[str | None, ...], int]

@final
class SideThreads:
    """Threads beside the one that hears Ctrl-C."""

    def __init__(self) -> None: ...
    def join(self) -> None:
        """Make the calling thread one of them, for as long as it exists."""

    def end(self) -> None:
        """End what they compute now and later, with InternalError."""

@final
class Changed:
    """Other values of an object's attributes in a with statement, whenever Ctrl-C comes."""

    def __init__(self, target: object, **values: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

@final
class Node:
    """A node of a graph.

    Attributes:
        op: its operator, "" for a variable.
        name: its name.
        attrs: its attributes, those of the operator and "__...__" of the node.
        inputs: shape and type flag of each input.
        outputs: the same for each output, including hidden ones.
        sources: each input's node, by its number in the graph, and output.
        control_deps: the numbers of other nodes that run before it.
        regions: the regions that a "multifetch" of tiles assembles; empty for other nodes.
    """

    @property
    def op(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def attrs(self) -> dict[str, str]: ...
    @property
    def inputs(self) -> list[tuple[_Shape, int]]: ...
    @property
    def outputs(self) -> list[tuple[_Shape, int]]: ...
    @property
    def sources(self) -> list[tuple[int, int]]: ...
    @property
    def control_deps(self) -> list[int]: ...
    @property
    def regions(self) -> list[_Region]: ...

@final
class Graph:
    """A graph of operators with the shape and dtype of every tensor.

    Attributes:
        hash: a hash of structure, shapes and dtypes: 16 hexadecimal digits.
        nodes: all nodes, each after its inputs.
        heads: the node of each head, by its number, and output.
        head_roles: the role of each head ("output", "gradient:w").
        tensor_names: the name of every output of every node: NODE, or NODE[1] for the second.
        tensor_bytes: bytes of all tensors.
        contexts: context group -> the first node in it; "" for nodes without one.
        variables: name and context group of every variable.
        placements: name and context group of every node, if some of them read other groups'
            arrays without a copy; else empty.
        has_copies: whether a tensor is copied to another context group.
    """

    def __init__(self, text: str) -> None:
        """Read NNVM's JSON. Raises GraphError when it is not a graph."""

    def to_json(self) -> str:
        """The graph as text, with tofu's attributes."""

    def to_symbol_json(self) -> str:
        """The graph without tofu's attributes, as MXNet loads it."""

    def nodes_of(self, ops: Set[str]) -> list[Node]:
        """The nodes of these operators."""

    def at_size(self, size: int, other: Graph, other_size: int, wanted_size: int) -> Graph | None:
        """The graph at another size, such as a batch size, from itself and `other` at theirs.

        Every extent, and every whole number in an attribute, is taken from the line through its
        two values. None if something else differs, or a value on a line is not whole: make the
        graph anew. Only a third graph shows that the line is right.
        """

    def placed(self, groups: Sequence[str], control_deps: Sequence[Sequence[int]]) -> Graph:
        """A copy whose nodes have these context groups and control dependencies."""

    @property
    def hash(self) -> str: ...
    @property
    def nodes(self) -> list[Node]: ...
    @property
    def heads(self) -> list[tuple[int, int]]: ...
    @property
    def head_roles(self) -> list[str]: ...
    @property
    def tensor_names(self) -> list[str]: ...
    @property
    def tensor_bytes(self) -> int: ...
    @property
    def contexts(self) -> dict[str, str]: ...
    @property
    def variables(self) -> list[tuple[str, str]]: ...
    @property
    def placements(self) -> list[tuple[str, str]]: ...
    @property
    def has_copies(self) -> bool: ...

@final
class StrategyTable:
    """How a graph can be partitioned.

    Attributes:
        graph: the graph.
        undescribed: the operators without a description, each once.
    """

    def __init__(self, text: str, graph: Graph) -> None:
        """Read a strategy table of `graph`. Raises GraphError when it does not fit."""

    @property
    def graph(self) -> Graph: ...
    @property
    def undescribed(self) -> list[str]: ...

@final
class Plan:
    """How every tensor and operator of a graph is partitioned.

    Attributes:
        table: the graph's strategy table.
        workers: number of workers.
        parts: the number of groups that each step divides a group into.
        shares, tile_multiple: what tofu.plans.parts.Parts holds of them.
        total_bytes: bytes all workers together fetch per training step.
        lower_bound_bytes: no plan of these steps communicates less; 0 if time was minimised.
        cost, lower_bound: of what the search minimised: bytes, or nanoseconds.
        status: "optimal", "steps-optimal" or "feasible".
        search_seconds: time from graph to plan.
        num_operators: operators of the graph.
        update_bytes: what updates communicate, which run outside of the partitioned graph.
        memory_bytes: what the fullest worker holds, an estimate.
        fullest_worker: the worker with the largest part of each step.
        mode: the search mode.
        objective: what the search minimised, one of config.OBJECTIVES.
        num_nodes: nodes of the graph, including variables.
        steps, tensors, operators: rows of tofu.plans.Step, TensorPlan and OperatorPlan.
        predicted, routes, output_routes: as the document has them (docs/formats.md).
    """

    def __init__(self, text: str, table: StrategyTable) -> None:
        """Read a plan. Raises PlanError when it is not one of the table's graph."""

    def to_json(self) -> str:
        """The plan as text."""

    def estimate_memory(self) -> dict[str, int]:
        """Estimate what the fullest worker holds, by kind."""

    def with_shares(
        self, *, shares: Sequence[Sequence[int]], multiple: int, time: TimeModel | None
    ) -> Plan:
        """The same cuts into other shares (tofu.plans.parts), with bytes and time counted anew.

        Args:
            shares: of each step's parts, empty for equal ones.
            multiple: on which bounds of tiles lie where that costs little.
            time: predicts the time; None: no prediction.
        """

    def with_prediction(self, time: TimeModel) -> Plan:
        """The plan with its predicted time on a machine, in its text."""

    def cuts(self, tensor: str) -> list[int]:
        """The dimension that each step cuts, -1 for none. Raises PlanError for other names."""

    def operator_bytes(self, ops: Sequence[str]) -> int:
        """Bytes that the operators of these names communicate in a step."""

    def indivisible_bytes(self) -> dict[str, int]:
        """Bytes, by node, of tensors that some step has to replicate."""

    def explain(self, name: str) -> str:
        """Return the cost of every other choice (JSON; docs/formats.md, "Explanation").

        name: a node, or "NODE[1]" for its second output.

        Raises PlanError when nothing has that name.
        """

    def step_problem(self, *, step: int) -> str:
        """The problem (JSON, docs/formats.md) that a step solves, given those before it.

        Raises PlanError when there is no such step.
        """

    @property
    def table(self) -> StrategyTable: ...
    @property
    def workers(self) -> int: ...
    @property
    def parts(self) -> list[int]: ...
    @property
    def shares(self) -> list[list[int]]: ...
    @property
    def tile_multiple(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def cost(self) -> int: ...
    @property
    def lower_bound(self) -> int: ...
    @property
    def lower_bound_bytes(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def search_seconds(self) -> float: ...
    @property
    def mode(self) -> str: ...
    @property
    def objective(self) -> str: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def steps(self) -> list[tuple[int, int, int]]: ...
    @property
    def tensors(self) -> list[_TensorRow]: ...
    @property
    def operators(self) -> list[_OperatorRow]: ...
    @property
    def predicted(self) -> dict[str, Any] | None: ...
    @property
    def routes(self) -> list[dict[str, Any]]: ...
    @property
    def output_routes(self) -> list[dict[str, Any]]: ...
    @property
    def num_operators(self) -> int: ...
    @property
    def update_bytes(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def fullest_worker(self) -> int: ...

def plan(
    table: StrategyTable,
    *,
    workers: int,
    pins: Mapping[str, Sequence[int]] = {},
    mode: str = "tofu",
    parts: Sequence[int] = [],
    allow_replication: bool = False,
    tie_updates: bool = False,
    equal_tiles: bool = False,
    memory_limit: int = 0,
    coarsen: bool = True,
    time_limit_s: float = 60,
    objective: str = "",
    time: TimeModel | None = None,
    on_pass: _OnPass | None = None,
    on_progress: Callable[[str, int | None, int], None] | None = None,
) -> Plan:
    """Search a plan.

    Args:
        table: strategy table of the training graph.
        workers: number of workers, at least 1.
        pins: name of a tensor (a node, or "NODE[1]" for its second output) -> the dimension
            to cut, one per step or one for all steps (-1: none).
        mode: one of `search_modes`, which docs/search.md defines.
        parts: parts of each step, their product being `workers`; empty: the prime factors,
            largest first.
        allow_replication: whether tensors may stay whole where that is cheaper.
        tie_updates: whether gradients and optimizer states are cut like their parameter where
            it stays whole, too.
        equal_tiles: whether all tiles of a tensor must have one size: steps cut only what
            divides.
        memory_limit: the most bytes that the tiles of a worker may take at a time, fetched
            regions not counted; 0: any number. Only with modes that improve steps.
        coarsen: whether tensors and operators that are partitioned alike are decided once.
        time_limit_s: after which the best plan found so far is returned.
        objective: one of config.OBJECTIVES; "": "time" if that is given, else "bytes".
        time: predicts the times that the objective time minimises. With allow_replication
            operators may be computed by all workers, too.
        on_pass: called with the name and a readable dump after every pass.
        on_progress: called with what the search does now, the cost of its best plan (None:
            there is none yet) and a lower bound, whenever one of them changes.

    Raises:
        tofu.errors.PlanError: an option does not fit the graph.
    """

def tile_bounds(
    shape: Sequence[int],
    cuts: Sequence[int],
    parts: Sequence[int],
    shares: Sequence[Sequence[int]],
    multiple: int,
) -> list[list[tuple[int, int]]]:
    """The pieces along each dimension of a tensor, in the order of their numbers."""

def ties_updates(mode: str, allow_replication: bool) -> bool:
    """Whether a search cuts gradients and optimizer states like their parameter."""

def plan_frontier(
    table: StrategyTable,
    *,
    workers: int,
    pins: Mapping[str, Sequence[int]] = {},
    mode: str = "tofu",
    parts: Sequence[int] = [],
    tie_updates: bool = False,
    equal_tiles: bool = False,
    searches: int,
    time_limit_s: float = 60,
    objective: str = "",
    time: TimeModel | None = None,
    on_progress: Callable[[str, int | None, int], None] | None = None,
) -> dict[str, Any]:
    """Search the plans that trade cost against the memory of tiles, whole tensors allowed.

    Args:
        table: strategy table of the training graph.
        workers: as for `plan`.
        pins: as for `plan`.
        mode: one that improves steps, such as "tofu".
        parts: as for `plan`.
        tie_updates: as for `plan`.
        equal_tiles: as for `plan`.
        objective: as for `plan`.
        time: as for `plan`.
        on_progress: as for `plan`.
        searches: number of memory limits to search within, at least 1.
        time_limit_s: after which the plans found so far are returned.

    Returns:
        plans: those that no other one found beats in both, by ascending memory;
        tile_bytes: what the tiles of a worker take at most, of each;
        complete: whether these are proven to be all there are.

    Raises:
        tofu.errors.PlanError: an option does not fit the graph.
    """

@final
class Partitioned:
    """A graph divided over workers.

    Attributes:
        workers: number of workers.
        graph: the instances of all workers; no control dependencies.
        node_workers: the worker of every node.
        variables: how each variable is divided; tofu.plans.layout.variables_of reads them.
        heads: the same for heads; tofu.plans.layout.heads_of reads them.
        fetched_bytes_per_worker: bytes that each worker fetches in a step.
        fetched_bytes: the sum over all workers.
        shared_bytes: bytes saved by sharing equal fetches.
        relayed_bytes: bytes added by fetching small regions through one of the workers.
        bytes_per_worker: bytes of all tensors on each worker, including fetched regions.
    """

    def in_order(self) -> Graph:
        """The graph with its order, which needs little memory, enforced by control dependencies."""

    @property
    def workers(self) -> int: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def variables(self) -> list[_Variable]: ...
    @property
    def heads(self) -> list[_Head]: ...
    @property
    def node_workers(self) -> list[int]: ...
    @property
    def fetched_bytes_per_worker(self) -> list[int]: ...
    @property
    def fetched_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def relayed_bytes(self) -> int: ...
    @property
    def bytes_per_worker(self) -> list[int]: ...

class ProgramStep:
    """A step of a worker's program.

    Attributes:
        kind: "variable", "run", "constant" or "fetch".
        name: the operator's or variable's, or "fc/in0", "fc/out0", "head/gradient:w" of a fetch.
        node: number of the operator in the training graph; -1: zeros.
        takes_part: whether this worker makes the outputs, or needs the variable.
        attrs: the attributes of the operator's part.
        inputs: (step, output) of the arrays that it reads.
        outputs: shape and type flag of each output.
        after: the steps that make what any worker reads here.
        pieces: of a fetch: (worker, or -1 for the fill; term; begin in the worker's array; begin in
            the region; extents).
        outline: for each term, its piece if that is the whole region, or else one of the fill; of
            neighbouring terms that are alike, the first three.
        reduction: how terms combine: "sum", "max", "min", "prod", "logsumexp" or "weighted";
            "apart": they do not, and lie side by side in a new first dimension.
        weighted_dims: the dimensions of "weighted" terms that their weights have, the last input.
        terms: their number.
        fill: the value of elements outside the tensor.
        held: the array of which others read pieces; step -1 if this worker has none.
        source: the same array on workers that make it last.
        receives: whether pieces are another worker's.
        sends: whether other workers read pieces of `held`.
        sent: (reader, begin in the array, extents) of each piece that another worker reads.
        received_bytes: bytes that all workers of a fetch receive.
        pattern: for a reader in the middle of the plan's digits: (steps, as bits, at which the
            senders' digits differ from its own; number of such senders).
    """

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def node(self) -> int: ...
    @property
    def takes_part(self) -> bool: ...
    @property
    def attrs(self) -> dict[str, str]: ...
    @property
    def inputs(self) -> list[tuple[int, int]]: ...
    @property
    def outputs(self) -> list[tuple[_Shape, int]]: ...
    @property
    def after(self) -> list[int]: ...
    @property
    def pieces(self) -> list[tuple[int, int, _Shape, _Shape, _Shape]]: ...
    @property
    def outline(self) -> list[tuple[int, int, _Shape, _Shape, _Shape]]: ...
    @property
    def reduction(self) -> str: ...
    @property
    def terms(self) -> int: ...
    @property
    def fill(self) -> str: ...
    @property
    def held(self) -> tuple[int, int]: ...
    @property
    def source(self) -> tuple[int, int]: ...
    @property
    def receives(self) -> bool: ...
    @property
    def sends(self) -> bool: ...
    @property
    def sent(self) -> list[tuple[int, _Shape, _Shape]]: ...
    @property
    def weighted_dims(self) -> list[int]: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def pattern(self) -> list[tuple[int, int]]: ...

class ExchangeOutline:
    """The bytes of one worker's messages in an exchange.

    Attributes:
        packed_bytes: sent in messages of several pieces; equal messages count once.
        alone: (number of the fetch, begin in its array, extents, how many messages) of messages of
            one piece, which are sent.
        received_bytes: bytes received in messages that are not in `apart`.
        apart: (sender, bytes) of messages with a piece that is a whole region.
    """

    @property
    def packed_bytes(self) -> int: ...
    @property
    def alone(self) -> list[tuple[int, _Shape, _Shape, int]]: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def apart(self) -> list[tuple[int, int]]: ...

class WorkerProgram:
    """The program of one worker.

    Attributes:
        worker: the worker.
        steps: in the order in which they run.
        heads: (role, array, step that makes it on some worker, whole shape, cuts by step).
        fetched_bytes: bytes that all workers fetch in a step.
        shared_bytes: bytes of the plan that shared regions and constants save.
    """

    @property
    def worker(self) -> int: ...
    @property
    def steps(self) -> list[ProgramStep]: ...
    @property
    def heads(self) -> list[tuple[str, tuple[int, int], int, _Shape, list[int]]]: ...
    def outline(self, fetches: Sequence[int], forms: Sequence[int]) -> ExchangeOutline:
        """Sum up the messages of an exchange of some fetches.

        Args:
            fetches: the numbers of their steps.
            forms: for each, a number that is equal where pieces of one array lie alike in messages.
        """

    @property
    def fetched_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...

def worker_program(plan: Plan, worker: int, *, spare_bytes: int = 0) -> WorkerProgram:
    """Generate the program of one worker of a plan.

    Args:
        plan: the plan.
        worker: the worker's number.
        spare_bytes: bytes by which a worker's peak may grow for regions that it keeps.
    """

def partition(
    plan: Plan,
    *,
    heads: Sequence[str] | None = None,
    fetch: str = "plain",
    share: bool = True,
    bundle: bool = True,
    crossing: str = "plain_tiles",
    small_bytes: int = 65536,
    spare_bytes: int = 0,
    view: int | None = None,
    on_pass: _OnPass | None = None,
) -> Partitioned:
    """Divide a plan's training graph over the workers.

    Args:
        plan: the plan.
        heads: roles ("gradient:w") or kinds of roles ("gradient") of the heads to
            generate; None: all except updates.
        fetch: "plain" (MXNet's own operators) or "multifetch".
        share: whether a worker fetches a region once for several operators if that needs no
            more memory; only with "multifetch".
        bundle: whether fetches that wait for each other anyway become one; only with
            "multifetch".
        crossing: the tiles that "multifetch" reads in place: "tiles", all of them, for GPUs; or
            "plain_tiles", for CPU contexts, where owners copy those that may be in one of oneDNN's
            layouts.
        small_bytes: "plain" fetches regions up to this size through one of the workers if that
            takes fewer copies.
        spare_bytes: by how much a worker's peak may grow for regions that it keeps, also from
            forward to backward, instead of fetching them again; only with `share`.
        view: instead of the graph of all workers, this worker's part of it, as worker 0, beside
            one or two others that read its tiles; only with "multifetch". Time and memory do
            not grow with the number of workers.
        on_pass: called with "partition" and a readable dump.

    Raises:
        tofu.errors.GraphError: no head has such a role, or the parts of an operator leave out
            some of its output.
        tofu.errors.PlanError: `fetch` or `crossing` has another value.
    """

@final
class TrainingStep:
    """The graphs that the executors of a training step run.

    Attributes:
        workers: number of workers.
        variables: how each variable is divided; tofu.plans.layout.variables_of reads them.
        forward_heads: the outputs; tofu.plans.layout.heads_of.
        backward_heads: gradients and new auxiliary states; empty without a backward half.
        graphs: one for both halves, after one that draws random numbers, if there are any; or
            the forward graph and the backward graph, if any.
        is_joint: whether there is one graph for both halves.
        forward_nodes: with a joint graph, the executor's number of the backward half's first
            node.
        nodes: with a joint graph, the number of the executor's nodes.
        saved: with two graphs, variables of the second: name, and the number of the first
            graph's head that it is.
    """

    @property
    def workers(self) -> int: ...
    @property
    def variables(self) -> list[_Variable]: ...
    @property
    def forward_heads(self) -> list[_Head]: ...
    @property
    def backward_heads(self) -> list[_Head]: ...
    @property
    def graphs(self) -> list[Graph]: ...
    @property
    def is_joint(self) -> bool: ...
    @property
    def forward_nodes(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def saved(self) -> list[tuple[str, int]]: ...

def schedule(
    partitioned: Partitioned,
    *,
    take: bool = False,
    joint: bool = False,
    on_pass: _OnPass | None = None,
) -> TrainingStep:
    """Turn a partitioned graph into the graphs that executors run.

    Args:
        partitioned: the partitioned graph.
        take: whether its graph is taken, which is quicker than a copy; it has none afterwards.
        joint: whether both halves become one graph, for one executor that runs them one at
            a time.
        on_pass: called with "phases" and a readable dump.
    """

def segments(graph: Graph, workers: int) -> list[tuple[int, int]]:
    """Find the operators of a graph that a GPU's engine gets as one.

    Returns begin and end, excluded, of each segment, as an executor numbers the nodes. Every
    node is in a context group.
    """

def bound_nodes(graph: Graph, workers: int) -> list[tuple[int, int]]:
    """List the nodes of a graph and its copies, as an executor numbers them.

    Returns of each the number in the graph, or -1 for a copy, and the worker. Every node is in a
    context group.
    """

@final
class OperatorUses:
    """The different ways in which a graph calls its operators.

    Attributes:
        nodes: for each way, the largest node that uses it.
    """

    def __init__(self, graph: Graph) -> None: ...
    @property
    def nodes(self) -> list[Node]: ...

def executor_memory(
    uses: OperatorUses,
    rules: Sequence[tuple[Sequence[tuple[int, int, bool]], Sequence[int]]],
    *,
    workers: int = 1,
    match_range: int = 16,
    search_match_range: bool = False,
    external_heads: Sequence[int] = (),
    only_worker: int = -1,
) -> dict[str, Any]:
    """Predict what MXNet's executor allocates; see tofu.mx.memory.executor_memory.predict.

    Args:
        uses: the ways in which the graph calls its operators.
        rules: for each way, what its operator does in place: (input, output, whether also
            while others still read the input), and the inputs whose values it does not read.
        workers: number of workers.
        match_range: NNVM_EXEC_MATCH_RANGE.
        search_match_range: NNVM_AUTO_SEARCH_MATCH_RANGE.
        external_heads: numbers of the heads whose arrays the caller provides.
        only_worker: the worker that counts; -1: all count.

    Raises:
        tofu.errors.GraphError: the rules do not fit the graph.
    """

@final
class Machine:
    """The hardware that a step runs on (docs/formats.md, "Machine file").

    Attributes:
        name: its name.
        sources: where its figures come from.
        measured: whether ``tofu calibrate`` measured them.
        devices: number of devices.
        is_gpu: whether these are GPUs.
        memory_bytes: memory of the smallest.
        is_mixed: whether they differ.
        tile_multiple: the number of elements on whose multiples bounds of tiles should lie.
    """

    def __init__(self, text: str, *, where: str = "machine file") -> None:
        """Read a machine file's text. Raises ConfigError, which starts with `where`."""

    def operator_seconds(self, op: str, work: tuple[str, float, float]) -> float:
        """The time of an operator with this work (kind, FLOPs, bytes), without launching it."""

    def seconds_of(
        self,
        calls: OperatorCalls,
        works: Sequence[tuple[str, float, float]],
        divided: float,
        device: int,
    ) -> float:
        """What a device needs for one of `divided` parts of all operators of a graph."""

    def memory_of(self, device: int) -> int:
        """Memory of a device."""

    def kind_of(self, device: int) -> str:
        """The kind of a device; "" if all are alike."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> list[str]: ...
    @property
    def measured(self) -> bool: ...
    @property
    def devices(self) -> int: ...
    @property
    def is_gpu(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def is_mixed(self) -> bool: ...
    @property
    def tile_multiple(self) -> int: ...

@final
class TimeModel:
    """A machine, and the work of every operator of a graph: what predicts a plan's time."""

    def __init__(
        self,
        machine: Machine,
        calls: OperatorCalls,
        works: Sequence[tuple[str, float, float]],
        is_balanced: bool = False,
    ) -> None:
        """Take the works of the calls.

        Args:
            machine: the machine.
            calls: the different calls of a graph's operators.
            works: (kind, FLOPs, bytes) for each of `calls`, of whole operators.
            is_balanced: whether the devices of a mixed machine take equally long.
        """

once_attribute: str
repeats_attribute: str

def recompute(
    table: StrategyTable, *, costs: Sequence[int], limit_bytes: int = 0
) -> dict[str, Any]:
    """Run parts of the forward pass again in the backward pass; see tofu.planner.recomputation.

    Args:
        table: strategy table of a training graph.
        costs: for each node, what running it again costs; negative: it must not.
        limit_bytes: bytes of whole activations that may stay; 0: as few as possible.

    Returns table (of the new graph), segments, repeated, saved_bytes, bytes, cost.
    """

class OperatorCalls:
    """The different calls of operators in a graph, by attributes, shapes and dtypes.

    Attributes:
        nodes: for each call, the first node that makes it.
    """

    def __init__(self, graph: Graph) -> None: ...
    @property
    def nodes(self) -> list[Node]: ...

def simulate(
    uses: OperatorUses,
    rules: Sequence[tuple[Sequence[tuple[int, int, bool]], Sequence[int]]],
    calls: OperatorCalls,
    works: Sequence[tuple[str, float, float]],
    machine: Machine,
    *,
    workers: int = 1,
    match_range: int = 16,
    search_match_range: bool = False,
    external_heads: Sequence[int] = (),
    is_stock: bool = False,
    with_timeline: bool = False,
) -> dict[str, Any]:
    """Simulate a graph on a machine; see tofu.simulate.simulation.simulate_plan.

    Args:
        uses: the ways in which the graph calls its operators.
        rules: what these do in place, as for executor_memory.
        calls: those of the same graph.
        works: kind, FLOPs and bytes of each call.
        machine: with at least one device per worker.
        workers: number of workers.
        match_range: NNVM_EXEC_MATCH_RANGE.
        search_match_range: NNVM_AUTO_SEARCH_MATCH_RANGE.
        external_heads: numbers of the heads whose arrays the caller provides.
        is_stock: whether MXNet makes its own segments of operators, as without tofu.
        with_timeline: whether to tell the time of every operation.

    Raises:
        tofu.errors.ConfigError: the machine has too few devices, or a kind is unknown.
    """

def solve(
    problem: str,
    *,
    limit: int | None = None,
    time_limit_s: float = 60.0,
    threads: int = 1,
    on_progress: Callable[[int | None, int], bool | None] | None = None,
) -> str:
    """Solve a problem of costs and memory (JSON, docs/formats.md, "Solution").

    Args:
        problem: a step problem.
        limit: bytes, instead of the problem's own limit; below 0: none.
        time_limit_s: seconds after which the best choice found so far is returned. If no
            choice fits, as long again to find the smallest limit under which one does.
        threads: number of threads; the answer does not depend on it.
        on_progress: called with the cost of the best choice (None if there is none yet) and
            the bound, whenever one of them improves; returning False ends the search.

    Raises:
        tofu.errors.PlanError: the text is not such a problem.
        KeyboardInterrupt: Ctrl-C was pressed.
    """

def cuda_kernel(spec: str, *, generic: bool = False) -> dict[str, Any]:
    """The CUDA kernel of one MultiFetch: name, source, and how to launch it.

    Args:
        spec: the attribute of a `_tofu_multifetch`.
        generic: whether to return the generic kernel instead of the specialized one.

    Raises:
        tofu.errors.GraphError: the text is not a specification, or has too many sources.
    """

def compile_cuda(source: str, *, arch: int, library: str = "", folder: str = "") -> bytes:
    """Compile a kernel with NVRTC to a cubin, or to PTX if NVRTC is older than the device.

    Args:
        source: the source that `cuda_kernel` returned.
        arch: the device's compute capability, 80 for 8.0.
        library: path of libnvrtc.so; empty: the system's.
        folder: the cache of compiled kernels; empty: no cache.

    Raises:
        tofu.errors.TofuError: there is no NVRTC, or it rejects the source.
    """
