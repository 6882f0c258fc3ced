"""The processes that tofu run --processes starts and ends; gluon/test_distributed.py trains."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tofu import server_process
from tofu.cli import processes
from tofu.cli.main import main
from tofu.errors import ConfigError

SHOW = """
import os, sys
names = ("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_TASK_ID", "MXNET_GRAPH_PASS",
         "DMLC_PS_ROOT_URI", "PS_HEARTBEAT_INTERVAL")
print(*map(os.environ.get, names), sys.argv[1:])
"""

END_S = processes._END_S


@pytest.fixture
def no_servers(monkeypatch):
    """Start no processes of the parameter server, which would take seconds."""
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    monkeypatch.setattr(server_process, "command", lambda role, environ: (sleep, dict(environ)))
    monkeypatch.setattr(processes, "_END_S", 0.1)


def run(script, count=2, servers=3, **variables):
    line = [sys.executable, "-c", script, "1"]
    return processes.run_processes(line, count, servers, {**os.environ, **variables})


def test_workers_get_the_variables_of_mxnets_launchers(no_servers, capfd):
    assert run(SHOW, MXNET_GRAPH_PASS="tofu", TOFU_DEVICE="cpu") == 0
    assert sorted(capfd.readouterr().out.splitlines()) == [
        f"worker 2 3 {task} tofu 127.0.0.1 2 ['1']" for task in (0, 1)
    ]


FAIL = """
import os, signal, sys, time
if os.environ["DMLC_TASK_ID"] == "1":
    os.write(int(os.environ["_TOFU_RANK_PIPE"]), b"0\\n")
    {what}
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("sys.exit(5)", 5, "worker process 0 ended with exit status 5; ending the others"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "worker process 0 was ended by SIGKILL; end"),
    ],
)
def test_one_failure_ends_all(no_servers, capfd, what, status, text):
    assert run(FAIL.format(what=what), 3) == status
    assert capfd.readouterr().err.startswith(f"tofu: {text}")


def test_servers_that_no_worker_has_met_end_with_the_workers(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    wait = "import pathlib, time; time.sleep(20); pathlib.Path('waited').touch()"
    line = [sys.executable, "-c", wait]
    monkeypatch.setattr(server_process, "command", lambda role, environ: (line, dict(environ)))
    monkeypatch.setattr(processes, "_END_S", 60.0)
    assert run("pass", servers=1) == 0
    assert not (tmp_path / "waited").exists()


SLOW_END = """
import os, signal, sys, time
from pathlib import Path

def end(*_):
    time.sleep(0.5)
    Path("saved").write_text("")
    sys.exit(0)

if os.environ["DMLC_TASK_ID"] == "0":
    signal.signal(signal.SIGTERM, end)
    Path("ready").write_text("")
    time.sleep(1000)
while not Path("ready").exists():
    time.sleep(0.01)
sys.exit(5)
"""


def test_a_process_that_is_ended_has_time_to_save(no_servers, monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_END_S", END_S)
    monkeypatch.chdir(tmp_path)
    assert run(SLOW_END) == 5
    assert (tmp_path / "saved").exists()


def test_a_process_without_a_rank_is_named_by_its_number(no_servers, capfd):
    assert run("raise SystemExit(5)", 1) == 5
    assert re.match(r"tofu: a worker process \(pid \d+\) ended with exit", capfd.readouterr().err)


def test_a_process_that_ends_well_leaves_the_others(no_servers, capfd):
    script = FAIL.format(what="sys.exit(0)").replace("1000", "0.5") + "print('end')"
    assert run(script) == 0
    assert capfd.readouterr().out == "end\n"


def test_a_launcher_that_is_ended_ends_its_processes(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)")
    line = [sys.executable, "-m", "tofu", "run", "--processes", "1", "--device", "cpu", script]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        pid = int(launcher.stdout.readline())
        launcher.terminate()
        assert launcher.wait(120) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_launcher_that_is_killed_leaves_nobody(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('here', flush=True)\ntime.sleep(1000)")
    line = [sys.executable, "-m", "tofu", "run", "--processes", "1", "--device", "cpu", script]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "here\n"
        launcher.kill()
        # The output ends when no process holds it open.
        ended = threading.Thread(target=launcher.stdout.read)
        ended.start()
        ended.join(20)
        assert not ended.is_alive()


@pytest.mark.parametrize("count", ["0", "-1", "two", "2000"])
def test_numbers_of_processes(count, capsys, tmp_path):
    (tmp_path / "train.py").write_text("")
    for option in ("--processes", "--servers"):
        others = [] if option == "--processes" else ["--processes", "2"]
        with pytest.raises(SystemExit) as ended:
            main(["run", *others, option, count, str(tmp_path / "train.py")])
        assert ended.value.code == 2
        assert f"{option} {count}: expected a whole number of proc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TOFU_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "0,1"}, [None, None]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [None, None]),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, ["0,1", "2,3"]),
        ({"CUDA_VISIBLE_DEVICES": "5, 3,1", "TOFU_WORKERS": "1"}, ["5", "3"]),
    ],
)
def test_every_process_gets_gpus_of_its_own(environ, expected):
    shares = processes._with_gpus([environ] * 2)
    if expected == [None, None]:
        assert shares == [environ] * 2
    else:
        assert [share["CUDA_VISIBLE_DEVICES"] for share in shares] == expected


def test_processes_with_different_numbers_of_workers_get_as_many_gpus():
    environs = [{"CUDA_VISIBLE_DEVICES": "0,1,2,3", "TOFU_WORKERS": each} for each in "13"]
    shares = processes._with_gpus(environs)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares] == ["0", "1,2,3"]
    with pytest.raises(ConfigError, match="they need 5 GPUs, one for each worker, and there are 4"):
        processes._with_gpus([*environs, environs[0]])


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ("2,3,1", "--workers 2,3,1: 3 numbers; expected one, or one for each of the 2 processes"),
        ("2,", "--workers=: expected a whole number of workers"),
        ("2,x", "--workers=x: expected a whole number of workers"),
    ],
)
def test_numbers_of_workers_of_each_process(workers, text, capsys, tmp_path):
    (tmp_path / "train.py").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["run", "--processes", "2", "--workers", workers, str(tmp_path / "train.py")])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "needed"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2", "TOFU_WORKERS": "2"}, 4),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "", "TOFU_DEVICE": "gpu"}, 2),
    ],
)
def test_too_few_gpus(environ, needed):
    with pytest.raises(ConfigError, match=f"--processes 2: they need {needed} GPUs"):
        processes._with_gpus([environ] * 2)


def test_a_server_process(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/modules"])
    environ = {"DMLC_ROLE": "server", "PS_HEARTBEAT_TIMEOUT": "9", "GLIBC_TUNABLES": "glibc.x=1"}
    line, given = server_process.command("server", environ)
    assert line == [sys.executable, "-m", "tofu.gluon.processes.parameter_server", "server"]
    assert "DMLC_ROLE" not in given  # MXNet would start one while it is imported
    assert given["MXNET_GRAPH_PASS"] == ""
    assert given["PYTHONPATH"] == os.pathsep.join([os.getcwd(), "/modules"])
    assert given["PS_HEARTBEAT_TIMEOUT"] == "9" and given["PS_HEARTBEAT_INTERVAL"] == "2"
    zeroed = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=255"
    assert given["GLIBC_TUNABLES"] == f"{zeroed}:glibc.x=1"


def test_the_scheduler_has_a_port_that_no_other_run_gets(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        assert port not in processes._PORTS
        monkeypatch.setattr(processes, "_PORTS", range(port, port + 1))
        with pytest.raises(ConfigError, match="no port"):
            processes._free_port()
    assert processes._free_port() == port
