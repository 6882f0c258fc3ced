"""The graph passes in C++, texts in, texts out (docs/formats.md), and CUDA kernels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

expected_table_version: int
search_modes: list[str]

def plan(
    graph: str,
    table: str,
    *,
    workers: int,
    pins: Mapping[str, Sequence[int]] = {},
    mode: str = "tofu",
    parts: Sequence[int] = [],
    allow_replication: bool = False,
    coarsen: bool = True,
    bound: bool = False,
    time_limit_s: float = 60,
    on_pass: Callable[[str, str], None] | None = None,
) -> str:
    """Search a plan for a training graph.

    Args:
        graph: training graph.
        table: strategy table of that graph.
        workers: number of workers, at least 1.
        pins: name of a tensor (a node, or "NODE[1]" for a further output) to the dimension
            cut at each step, or to one for all steps (-1: none), fixed beforehand.
        mode: one of `search_modes`, which docs/search.md defines.
        parts: parts of each step, their product being `workers`; empty: the prime factors,
            largest first.
        allow_replication: whether tensors may stay whole where that is cheaper.
        coarsen: whether tensors and operators that are partitioned alike are decided once.
        bound: whether what is left of the time limit is spent on a better lower bound,
            which may find a better plan, too.
        time_limit_s: after which the best plan found so far is returned.
        on_pass: called with the name and a readable dump after every pass.

    Raises:
        tofu.errors.GraphError: the graph or the table cannot be read.
        tofu.errors.PlanError: an option does not fit the graph.
    """

def partition(
    graph: str,
    table: str,
    plan: str,
    *,
    heads: Sequence[str] | None = None,
    fetch: str = "plain",
    share: bool = True,
    control_deps: bool = True,
    delay_fetches: bool = True,
    on_pass: Callable[[str, str], None] | None = None,
) -> str:
    """Generate the partitioned graph of a training graph and its plan.

    Args:
        graph: training graph.
        table: strategy table of that graph.
        plan: plan of that graph.
        heads: roles ("gradient:w") or kinds of roles ("gradient") of the heads to
            generate; None: all but the updates.
        fetch: "plain" (MXNet's own operators) or "multifetch".
        share: whether a worker fetches a region once for several operators where that needs
            no more memory; only with "multifetch".
        control_deps: whether nodes are kept in the order that needs little memory.
        delay_fetches: whether a fetch starts just before its first reader in that order, and
            not as soon as it could; only with "multifetch".
        on_pass: called with "partition" and a readable dump.

    Raises:
        tofu.errors.GraphError: a text cannot be read, no head has such a role, or the
            parts of an operator leave out some of its output.
        tofu.errors.PlanError: the plan is of another graph, or `fetch` has another value.
    """

def explain(graph: str, table: str, plan: str, name: str) -> str:
    """What every other choice would cost (JSON; docs/formats.md, "Explanation").

    Args:
        graph: training graph.
        table: strategy table of that graph.
        plan: plan of that graph.
        name: a node, or "NODE[1]" for a further output of one.

    Raises:
        tofu.errors.GraphError: the graph or the table cannot be read.
        tofu.errors.PlanError: the plan is of another graph, or nothing has that name.
    """

class Graph:
    """A graph that stays in C++: large ones take long to read and to write.

    Raises:
        tofu.errors.GraphError: the text is no graph.
    """

    def __init__(self, text: str) -> None: ...

def step_graphs(
    graph: str, table: str, plan: str, *, fetch: str = "plain", joint: bool = False
) -> tuple[str, list[Graph]]:
    """Partition a training graph and split it into what executors run.

    Args:
        graph: training graph.
        table: strategy table of that graph.
        plan: plan of that graph.
        fetch: "plain" (MXNet's own operators) or "multifetch".
        joint: as in `phases`.

    Returns the document that `partition` returns but for its graph, and the graphs: one for
    both halves, or the forward and the backward one.

    Raises:
        tofu.errors.GraphError, tofu.errors.PlanError: as `partition`.
    """

def read_step_graphs(partitioned: str, phases: str) -> tuple[str, list[Graph]]:
    """The same of what `partition` and `phases` returned.

    Raises:
        tofu.errors.GraphError: a text is no such document.
    """

def operator_uses(graph: Graph) -> str:
    """The ways in which a graph calls its operators (JSON, docs/formats.md)."""

def executor_memory(
    graph: Graph,
    rules: str,
    *,
    workers: int = 1,
    match_range: int = 16,
    search_match_range: bool = False,
    external_heads: Sequence[int] = (),
) -> dict[str, Any]:
    """Predict what MXNet's executor allocates for a graph; see tofu.mx.memory.planner.predict.

    Raises:
        tofu.errors.GraphError: the rules cannot be read, or do not fit.
    """

def phases(
    partitioned: str,
    *,
    joint: bool = False,
    control_deps: bool = True,
    on_pass: Callable[[str, str], None] | None = None,
) -> str:
    """Split a partitioned graph into its forward and backward graphs.

    Args:
        partitioned: what `partition` returns.
        joint: whether they become one graph again, for one executor that runs them one at
            a time.
        control_deps: as in `partition`.
        on_pass: called with "phases" and a readable dump.

    Raises:
        tofu.errors.GraphError: the text is no partitioned graph.
    """

def step_problem(graph: str, table: str, plan: str, *, step: int) -> str:
    """The problem (JSON, docs/formats.md) that a step of a plan solves.

    Args:
        graph: the training graph that `plan` is of.
        table: its strategy table.
        plan: whose cuts hold for all steps before `step`.
        step: number of the step, from 0.

    Raises:
        tofu.errors.GraphError, tofu.errors.TableError, tofu.errors.PlanError: a text is
            damaged, or the plan has no such step.
    """

def solve_step_problem(problem: str) -> str:
    """What the search's elimination finds for a step's problem (JSON, docs/formats.md).

    Args:
        problem: the text that `step_problem` made.

    Raises:
        tofu.errors.PlanError: the text is no such problem.
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
        problem: a step problem, or one of the IOPDDL contest.
        limit: bytes, instead of the problem's own limit; below 0: none.
        time_limit_s: after which the best choice found so far is returned. Where no choice
            fits, as long again for the least limit under which one does.
        threads: that divide the search; the answer does not depend on them.
        on_progress: called with the cost of the best choice (None: there is none yet) and the
            bound, whenever one of them is better; False ends the search.

    Raises:
        tofu.errors.PlanError: the text is no such problem.
        KeyboardInterrupt: Ctrl-C was pressed.
    """

def graph_hash(graph: str) -> str:
    """Hash of a graph's structure, shapes and dtypes: 16 hexadecimal digits.

    Raises:
        tofu.errors.GraphError: the text is no graph.
    """

def cuda_kernel(spec: str, *, generic: bool = False) -> dict[str, Any]:
    """The CUDA kernel of one MultiFetch: name, source, and how to launch it.

    Args:
        spec: the attribute of a `_tofu_multifetch`.
        generic: the kernel that serves every specification, not the one of this one.

    Raises:
        tofu.errors.GraphError: the text is no specification, or has too many sources.
    """

def compile_cuda(source: str, *, arch: int, library: str = "", folder: str = "") -> bytes:
    """Compile a kernel with NVRTC: a cubin, or PTX where NVRTC is older than the device.

    Args:
        source: what `cuda_kernel` emitted.
        arch: the device's compute capability, 80 for 8.0.
        library: path of libnvrtc.so; empty: the one that the system finds.
        folder: where compiled kernels are kept; empty: nowhere.

    Raises:
        tofu.errors.TofuError: there is no NVRTC, or it refuses the source.
    """
