"""``tofu run``: runs a script like python, with tofu enabled."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

import click

from tofu.cli.options import (
    Script,
    allow_replication_option,
    allow_replication_within_option,
    check_script,
    describe_option,
    device_option,
    fetch_option,
    keep_fetched_option,
    log_option,
    machine_option,
    memory_option,
    objective_option,
    pin_file_option,
    pin_option,
    recompute_option,
    search_option,
    switch_on,
    tell_misplaced,
    workers_option,
)
from tofu.cli.processes import parse_processes, parse_workers_of_each, run_processes
from tofu.errors import ConfigError

__all__ = ["run"]


@click.command(
    cls=Script,
    context_settings={"allow_interspersed_args": False},
    short_help="Run a script partitioned.",
)
@workers_option
@device_option
@fetch_option
@log_option
@describe_option
@search_option
@allow_replication_option
@allow_replication_within_option
@objective_option
@machine_option
@memory_option
@recompute_option
@keep_fetched_option
@pin_option
@pin_file_option
@click.option(
    "--plan", metavar="PLAN", help="Use a plan that tofu plan --save wrote. Default: $TOFU_PLAN."
)
@click.option(
    "--strict", is_flag=True, help="Stop if a block would run serially. Default: $TOFU_STRICT."
)
@click.option(
    "--processes",
    metavar="N",
    help="Train in N processes on this machine, each with workers of its own (--workers K, or "
    "K1,K2,... for each process); for scripts with kvstore='dist_sync'.",
)
@click.option(
    "--servers",
    metavar="S",
    help="Number of processes of the parameter server, with --processes. Default: N.",
)
@click.option(
    "-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python."
)
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    strict: bool,
    processes: Optional[str],
    servers: Optional[str],
    is_module: bool,
    script: str,
    args: tuple[str, ...],
    **options: Any,
) -> None:
    """Run SCRIPT with ARGS like python, with its blocks partitioned.

    The same as MXNET_GRAPH_PASS=tofu python SCRIPT ARGS. All that follows SCRIPT is the script's,
    with or without a -- in between.
    """
    if not is_module:
        check_script(script)
    plan, search = options["plan"], options["search"]
    if plan is not None and search is not None:
        raise ConfigError(
            f"--search {search}: --plan {plan} is used instead of a search; leave one of them out"
        )
    if strict:
        os.environ["TOFU_STRICT"] = "1"
    count = None if processes is None else parse_processes(processes, "--processes")
    workers: list[str] = []
    if count is not None and options["workers"] is not None:
        workers = parse_workers_of_each(options["workers"], count)
        options["workers"] = workers[0]
    switch_on(**options)
    tell_misplaced(click.get_current_context(), script, args)
    sys.stdout.flush()
    line = [sys.executable, *(["-m"] if is_module else []), script, *args]
    if count is not None:
        number = count if servers is None else parse_processes(servers, "--servers")
        raise SystemExit(run_processes(line, count, number, os.environ, workers))
    os.execv(sys.executable, line)
