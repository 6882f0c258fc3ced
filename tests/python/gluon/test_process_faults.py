"""A fault of any process of distributed training, at any stage, ends all processes clearly."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ..support import forked
from .test_distributed import TUNABLES, environment

FILE = pathlib.Path(__file__).with_name("faulty_script.py")
STAGES = ("start", "first", "step", "save", "end")
LIMITS = {"TOFU_TIMEOUT": "8", "PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "5"}
START_S = 120  # until a stage is reached, on a machine that does other things as well
END_S = 60  # from the fault until nothing is left
LAUNCH = ["-m", "tofu", "run", "--processes=2", "--servers=1", "--workers=2"]
NAMESPACE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

# For each fault, the pattern of a line of the output. A worker process has no rank at the start.
WORKER = r"tofu: (worker process \d|a worker process \(pid \d+\)) "
SILENT = (
    r"tofu: (a worker process|scheduler|server|worker process \d of 2), waiting for .*nothing for|"
    r"tofu: scheduler: no heartbeat from worker process \d for 5 s"
)
FAULTS = {
    ("worker", "killed"): WORKER + "was ended by SIGKILL; ending the others",
    ("worker", "stopped"): SILENT,
    ("worker", "exits"): WORKER + "ended with exit status 3; ending the others",
    ("worker", "raises"): WORKER + "ended with exit status 1; ending the others",
    ("worker", "memory"): WORKER + "ended with exit status 1; ending the others",
    ("server", "killed"): "tofu: server was ended by SIGKILL; ending the others",
    ("server", "exits"): "tofu: server was ended by SIGTERM; ending the others",
    ("server", "stopped"): "waiting for .*nothing for 8 s|no heartbeat from server process 0 for 5",
    ("server", "memory"): "tofu: server (was ended by|ended with)",
    ("scheduler", "killed"): "tofu: scheduler was ended by SIGKILL; ending the others",
    ("scheduler", "exits"): "tofu: scheduler was ended by SIGTERM; ending the others",
    ("scheduler", "stopped"): "waiting for .*nothing for 8 s|no heartbeat from the scheduler for 5",
    ("launcher", "killed"): "",
    ("launcher", "exits"): "",
    ("launcher", "interrupted"): "",
    ("network", "gone"): "waiting for .*nothing for 8 s|no heartbeat from .* for 5 s",
}
SAMPLE = {("worker", "exits", "first")}


def cases():
    for (role, fault), text in FAULTS.items():
        # A server that has all values allocates no more memory.
        for stage in STAGES[:2] if (role, fault) == ("server", "memory") else STAGES:
            marks = [] if (role, fault, stage) in SAMPLE else [pytest.mark.whole]
            yield pytest.param(role, fault, stage, text, marks=marks, id=f"{role}-{fault}-{stage}")


def members(told):
    """The living processes of a run, which write into one file, with their command lines."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if entry.name.isdecimal() and os.readlink(entry / "fd" / "2") == str(told):
                line = entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = line
    return found


def process_of(told, role):
    """The server or the scheduler."""
    return next(pid for pid, line in members(told).items() if f"parameter_server {role}" in line)


def cause(launcher, told, role, fault, worker):
    """Let a process other than a worker process meet a fault."""
    if role == "network":
        down = ["nsenter", "--net", "--target", str(worker), "ip", "link", "set", "lo", "down"]
        subprocess.run(down, check=True)
        return
    pid = launcher if role == "launcher" else process_of(told, role)
    if fault == "memory":
        resource.prlimit(pid, resource.RLIMIT_AS, (2**20, 2**20))
    else:
        number = {"killed": "KILL", "exits": "TERM", "stopped": "STOP", "interrupted": "INT"}[fault]
        os.kill(pid, signal.Signals[f"SIG{number}"])


@contextlib.contextmanager
def launched(folder, line):
    """Yield a started launcher and the file of its processes' output; end them all."""
    told = folder / "told"
    with told.open("w") as out:
        launcher = subprocess.Popen(
            line,
            cwd=folder,
            env=environment(**LIMITS),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield launcher, told
    finally:
        for pid in members(told):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()


def wait_until(condition, seconds):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


@pytest.mark.slow
@pytest.mark.parametrize(("role", "fault", "stage", "text"), list(cases()))
def test_all_end_soon_with_an_error(tmp_path, role, fault, stage, text):
    python = sys.executable
    if role == "worker" and fault != "stopped":  # forked processes start sooner
        forked.prepare(TUNABLES)
        python = forked.python()
    where = fault if role == "worker" else "elsewhere"
    line = [python, *LAUNCH, str(FILE), str(tmp_path), stage, where]
    if role == "network":
        if os.geteuid() or not shutil.which("ip") or not shutil.which("nsenter"):
            pytest.skip("network namespaces need root, ip and nsenter")
        line = [*NAMESPACE, *line]
    with launched(tmp_path, line) as (launcher, told):
        reached = tmp_path / "reached"
        if role != "worker":
            assert wait_until(reached.exists, START_S), told.read_text()
            cause(launcher.pid, told, role, fault, reached.read_text())
            (tmp_path / "done").touch()
        ended = wait_until(
            lambda: launcher.poll() is not None and not members(told),
            END_S + (START_S if role == "worker" else 0),
        )
        assert ended, (members(told), told.read_text())
        assert launcher.returncode != 0, told.read_text()
        assert re.search(text, told.read_text()), told.read_text()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("stage", STAGES)
def test_training_ends_while_its_launcher_is_stopped(tmp_path, stage):
    """A stopped launcher only watches; when it continues, it reports the end of the run."""
    line = [sys.executable, *LAUNCH, str(FILE), str(tmp_path), stage, "elsewhere"]
    with launched(tmp_path, line) as (launcher, told):
        assert wait_until((tmp_path / "reached").exists, START_S), told.read_text()
        os.kill(launcher.pid, signal.SIGSTOP)
        (tmp_path / "done").touch()
        ended = wait_until(lambda: set(members(told)) == {launcher.pid}, END_S)
        assert ended, (members(told), told.read_text())
        assert (tmp_path / "net.states").exists()
        os.kill(launcher.pid, signal.SIGCONT)
        assert wait_until(lambda: launcher.poll() is not None, END_S), told.read_text()
        assert launcher.returncode == 0, told.read_text()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("fault", ["KILL", "TERM"])
def test_a_stopped_launcher_hides_no_fault(tmp_path, fault):
    """The other worker ends itself within the limit; the launcher reports why when it continues."""
    line = [sys.executable, *LAUNCH, str(FILE), str(tmp_path), "step", "elsewhere"]
    with launched(tmp_path, line) as (launcher, told):
        reached = tmp_path / "reached"
        assert wait_until(reached.exists, START_S), told.read_text()
        os.kill(launcher.pid, signal.SIGSTOP)
        os.kill(int(reached.read_text()), signal.Signals[f"SIG{fault}"])

        def has_ended():
            lines = [line for pid, line in members(told).items() if pid != launcher.pid]
            return not any(str(FILE) in line for line in lines)

        assert wait_until(has_ended, END_S), (members(told), told.read_text())
        os.kill(launcher.pid, signal.SIGCONT)
        ended = wait_until(lambda: launcher.poll() is not None and not members(told), END_S)
        assert ended, (members(told), told.read_text())
        assert launcher.returncode != 0, told.read_text()
        assert f"was ended by SIG{fault}; ending the others" in told.read_text()
