"""Distributed training in several processes on the loopback address."""

import functools
import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess

import numpy as np
import pytest

from tofu import server_process

from ..support import forked
from . import distributed_script as script

FILE = pathlib.Path(script.__file__)
LIMIT_S = 400  # of a test, on a machine that does other things as well
# The parameter server's processes start with it.
TUNABLES = server_process.command("server", {})[1]["GLIBC_TUNABLES"]
CLEAN = ("TOFU_", "MXNET_", "DMLC_", "PS_")


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(CLEAN)}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PS_HEARTBEAT_INTERVAL": "1",  # an ending process waits for its last one
        "TOFU_DEVICE": "cpu",
        "TOFU_WORKERS": "2",
        "TOFU_LOG": "quiet",
        **variables,
    }


def launch(folder, *args, processes=2, servers=1, workers="2", file=FILE, **variables):
    """Run a script in several processes; return its output."""
    forked.prepare(TUNABLES)
    words = [str(processes), str(servers), workers, str(file), *map(str, args)]
    try:
        return forked.run(
            ["-c", LAUNCH, *words], cwd=folder, env=environment(**variables), timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs: {words}")


LAUNCH = """
import sys, warnings
from tofu.cli.main import main
warnings.simplefilter("error")
processes, servers, workers, *rest = sys.argv[1:]
main(["run", "--processes", processes, "--servers", servers, "--workers", workers, *rest])
"""


@functools.cache
def serial(case, steps=script.STEPS):
    """Weights and losses after training alone on whole batches, in plain MXNet."""
    optimizer, dtype, _, _, *odd = case.split(":")
    net, _, losses = script.train(":".join([optimizer, dtype, "local", "0", *odd]), steps=steps)
    return {**script.weights(net), "losses": losses[-script.STEPS :]}


def assert_weights(folder, case, processes, expected):
    """Check that all processes have these weights, and that their losses add up to these."""
    tolerance = {"rtol": 1e-9, "atol": 1e-11} if "float64" in case else {"rtol": 2e-4, "atol": 2e-5}
    losses = 0
    for rank in range(processes):
        with np.load(folder / f"{case.replace(':', '-')}-{rank}.npz") as found:
            assert set(found) == set(expected)
            losses = losses + found["losses"]
            for name in set(expected) - {"losses"}:
                np.testing.assert_allclose(found[name], expected[name], **tolerance, err_msg=name)
    np.testing.assert_allclose(losses, expected["losses"], **tolerance)


# Trainers that update in their processes share one connection.
TOGETHER = (
    "sgd:float32:dist_sync:0",
    "adam:float64:dist_device_sync:0",
    "lamb:float32:dist_sync:0",
)


@pytest.mark.parametrize(
    ("processes", "servers"), [(2, 2), pytest.param(4, 1, marks=pytest.mark.whole)]
)
def test_processes_that_update_by_themselves_equal_one(tmp_path, processes, servers):
    # Arrays of 100 elements and more are spread over the servers.
    variables = {"processes": processes, "servers": servers, "MXNET_KVSTORE_BIGARRAY_BOUND": "100"}
    done = launch(tmp_path, tmp_path, *TOGETHER, **variables)
    assert done.returncode == 0, done.stderr
    for case in TOGETHER:
        assert_weights(tmp_path, case, processes, serial(case))
    # Weights and biases of the first two layers are two tiles each; the last layer is whole.
    assert done.stdout == "tiles [2, 2, 2, 2, 2, 2] keys 12\n" * processes
    # Process 0 has saved the files for all.
    net = script.build("float32")
    net.load_parameters(str(tmp_path / "net"))
    expected = serial(TOGETHER[0])
    for name, value in script.weights(net).items():
        np.testing.assert_allclose(value, expected[name], 2e-4, 2e-5)
    states, optimizer = pickle.loads((tmp_path / "states").read_bytes())
    assert sorted(states) == [0, 1, 2, 3, 4, 5] and optimizer.num_update == script.STEPS
    assert states[0].shape == net.conv.bias.shape
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("workers", "again"),
    [
        ("2,3", "3"),  # saved in two processes, and loaded in one
        pytest.param("2,3,1", "3,2", marks=pytest.mark.whole),
        pytest.param("3,1,2,5", "7", marks=pytest.mark.whole),
    ],
)
def test_processes_with_different_numbers_of_workers_equal_one(tmp_path, workers, again):
    cases = [f"{case}:odd" for case in TOGETHER]
    cases.insert(0, cases[0].replace("float32", "float64"))
    big = {"MXNET_KVSTORE_BIGARRAY_BOUND": "100"}
    for numbers, steps in ((workers, script.STEPS), (again, 2 * script.STEPS)):
        count = numbers.count(",") + 1
        options = {"processes": count, "servers": 2, "workers": numbers, **big}
        done = launch(tmp_path, tmp_path, *cases, **options)
        assert done.returncode == 0, done.stderr
        assert_weights(tmp_path, cases[0], count, serial(cases[0], steps))
        for case in cases[1:]:  # these start anew
            assert_weights(tmp_path, case, count, serial(case))
        told = [re.match(r"tiles \[(\d).* keys (\d+)", line) for line in done.stdout.splitlines()]
        assert sorted(each[1] for each in told) == sorted(numbers.split(","))
        assert len({each[2] for each in told}) == 1


@pytest.mark.parametrize(
    ("case", "workers"),
    [
        ("adam:float64:dist_device_sync:1:odd", "2,3,1"),
        pytest.param("sgd:float32:dist_sync:1:odd", "2,3", marks=pytest.mark.whole),
        pytest.param("lamb:float32:dist_sync:1:odd", "1,3", marks=pytest.mark.whole),
    ],
)
def test_servers_that_update_for_different_numbers_of_workers(tmp_path, case, workers):
    count = workers.count(",") + 1
    done = launch(tmp_path, tmp_path, case, processes=count, workers=workers)
    assert done.returncode == 0, done.stderr
    assert_weights(tmp_path, case, count, serial(case))


@pytest.mark.parametrize("mode", ["zero-2", pytest.param("zero-1", marks=pytest.mark.whole)])
def test_states_cut_apart_from_weights(tmp_path, mode):
    """Processes exchange whole gradients, and each worker updates its part of a weight."""
    done = launch(tmp_path, tmp_path, *TOGETHER, TOFU_SEARCH=mode)
    assert done.returncode == 0, done.stderr
    for case in TOGETHER:
        assert_weights(tmp_path, case, 2, serial(case))
    assert done.stdout == "tiles [2, 2, 2, 2, 2, 2] keys 6\n" * 2
    states, _ = pickle.loads((tmp_path / "states").read_bytes())
    assert states[0].shape == script.build("float32").conv.bias.shape


@pytest.mark.parametrize(
    ("case", "processes"),
    [
        ("adam:float64:dist_sync:1", 4),
        pytest.param("sgd:float32:dist_device_sync:1", 2, marks=pytest.mark.whole),
        pytest.param("lamb:float32:dist_sync:1", 2, marks=pytest.mark.whole),
    ],
)
def test_servers_that_update_equal_one_process(tmp_path, case, processes):
    done = launch(tmp_path, tmp_path, case, processes=processes)
    assert done.returncode == 0, done.stderr
    assert_weights(tmp_path, case, processes, serial(case))
    whole = "lamb" in case  # its optimizer needs the norms of whole tensors
    assert done.stdout == f"tiles [2, 2, 2, 2, 2, 2] keys {6 if whole else 12}\n" * processes


@pytest.mark.whole
def test_plain_mxnet_comes_to_the_same(tmp_path):
    """Plain MXNet runs in its own processes, with the same parameter server."""
    case = "sgd:float32:dist_sync:1"
    plain = tmp_path / "plain.py"
    plain.write_text(
        "import os, runpy, sys\n"
        "os.environ['MXNET_GRAPH_PASS'] = ''\n"
        f"runpy.run_path({str(FILE)!r}, run_name='__main__')\n"
    )
    done = launch(tmp_path, tmp_path, case, file=plain)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert_weights(tmp_path, case, 2, serial(case))


# --- Processes that die, hang or disagree -----------------------------------------------------

FAULT = r"""
import os, signal, sys, time
sys.path.insert(0, {folder!r})
task = int(os.environ["DMLC_TASK_ID"])
if task and {fault!r} == "plain":
    del os.environ["MXNET_GRAPH_PASS"]
import mxnet as mx
import distributed_script as script
from mxnet import gluon

net = script.build("float32", odd={fault!r} == "sizes" and task == 1)
trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
script.fit(net, trainer, "float32", range(2), odd=net.last.weight.shape[0] != 7)
# The limit is set only now, because a busy machine may take longer to start the processes.
trainer._tofu_connection.cluster.watchdog._limit_s = {limit}
sys.stdout.write(f"trained {{task}} {{trainer._kvstore.rank}}\n")  # at once, as processes share it
sys.stdout.flush()
if task:
    if {fault!r} == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif {fault!r} == "raise":
        raise ValueError("mine")
    elif {fault!r} == "exit":
        raise SystemExit(5)
    elif {fault!r} == "hang":
        time.sleep(1000)
script.fit(net, trainer, "float32", range(2, 4))
print("ended", task)
"""


def faulty(folder, fault):
    path = folder / "train.py"
    limit = 1 if fault == "hang" else 0
    path.write_text(FAULT.format(folder=str(FILE.parent), fault=fault, limit=limit))
    return path


@pytest.mark.whole(but=1)
@pytest.mark.parametrize(
    ("fault", "status", "texts"),
    [
        ("kill", 137, ["tofu: worker process {rank} was ended by SIGKILL; ending the others"]),
        (
            "raise",
            1,
            ["ValueError: mine", "tofu: worker process {rank} ended with exit status 1; end"],
        ),
        ("exit", 5, ["ended with exit status 5; ending the others"]),
        ("hang", 1, ["waiting for the gradients of all processes in step 3: nothing for 1 s"]),
        (
            "sizes",
            2,
            [
                "gluon.Trainer: parameter 0: [",
                "] float32 write in worker process 1, [",
                "expected the same model and Trainer in all processes, which may have different",
            ],
        ),
    ],
)
def test_a_fault_in_one_process_ends_the_run(tmp_path, fault, status, texts):
    done = launch(tmp_path, file=faulty(tmp_path, fault))
    assert done.returncode == status, (done.stdout, done.stderr)
    assert "ended" not in done.stdout
    rank = next((line[-1] for line in done.stdout.splitlines() if "trained 1" in line), "")
    for text in texts:
        assert text.format(rank=rank) in done.stderr


def alone(**variables):
    """The environment of a process of a run that no launcher watches."""
    from tofu.cli.processes import _free_port

    return environment(
        **{
            "MXNET_GRAPH_PASS": "tofu",
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(_free_port()),
            "DMLC_NODE_HOST": "127.0.0.1",
            "DMLC_NUM_WORKER": "2",
            "DMLC_NUM_SERVER": "1",
            **variables,
        }
    )


def roles(folder, line, **variables):
    """The processes of a run, as a launcher of another machine starts them: by variables."""
    common = alone(**variables)

    def start(role, task):
        return subprocess.Popen(
            [forked.python(), *line],
            cwd=folder,
            env={**common, "DMLC_ROLE": role, "DMLC_TASK_ID": str(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    forked.prepare(TUNABLES)
    return [
        start(*each) for each in (("scheduler", 0), ("server", 0), ("worker", 0), ("worker", 1))
    ]


CONNECT = "import mxnet as mx; mx.kv.create('dist_sync')"


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("role", ["worker", "server", "scheduler"])
def test_no_process_waits_for_others_without_end(tmp_path, role):
    """This holds even if the script makes the kvstore itself."""
    env = alone(DMLC_ROLE=role, TOFU_TIMEOUT="1")
    forked.prepare(TUNABLES)
    done = forked.run(["-c", CONNECT], cwd=tmp_path, env=env, timeout=LIMIT_S)
    assert done.returncode == 1, done.stderr
    assert "waiting for the other processes to start (scheduler at 127.0.0.1:" in done.stderr
    assert "nothing for 1 s" in done.stderr


MEETS = """
import time, mxnet as mx
from tofu.gluon.session.session import active
store = mx.kv.create("dist_sync")
# Not before: a busy machine may take longer to start the processes.
object.__setattr__(active(), "timeout_s", 1)
if store.rank:
    time.sleep(1000)
{call}
"""


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("call", ["store._barrier()", "store.init('key', mx.nd.ones(2))"])
def test_no_call_of_the_scripts_kvstore_waits_without_end(tmp_path, call):
    """For a process that lives, and does not make the same call."""
    (tmp_path / "train.py").write_text(MEETS.format(call=call))
    done = launch(tmp_path, file=tmp_path / "train.py")
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert (
        "tofu: worker process 0, waiting for the other processes in a call of the script's "
        "kvstore: nothing for 1 s. Another process has ended, hangs, or" in done.stderr
    )


def test_a_port_in_use_is_one_error(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        forked.prepare(TUNABLES)
        env = alone(DMLC_ROLE="scheduler", DMLC_PS_ROOT_PORT=port)
        done = forked.run(["-c", CONNECT], cwd=tmp_path, env=env, timeout=LIMIT_S)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tofu: scheduler: 127.0.0.1:{port}: the port is in use; end")
    assert done.stderr.count("\n") == 1


def test_processes_without_a_distributed_kvstore_are_told(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import mxnet as mx\n")
    done = launch(tmp_path, file=script)
    assert done.returncode == 0
    assert "the script has made no distributed kvstore: its 2 processes have" in done.stderr


LISTENS = """
import os, pathlib, mxnet as mx
store = mx.kv.create("dist_sync")
mine = os.readlink("/proc/self/fd/1")  # all processes of a run write there
lines = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
hosts = {f"socket:[{words[9]}]": words[1][:8] for words in lines if words[3] == "0A"}
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        its = os.readlink(process / "fd" / "1") == mine
        if process.name == str(os.getpid()) or (store.rank == 0 and its):
            for file in (process / "fd").iterdir():
                host = hosts.get(os.readlink(file))
                if host:
                    print("listens", host)
    except OSError:  # it has ended, or is another user's
        pass
store._barrier()
del store  # or the launcher would wait for the server
"""


def test_the_processes_of_a_run_listen_on_the_loopback_address_alone(tmp_path):
    (tmp_path / "train.py").write_text(LISTENS)
    done = launch(tmp_path, file=tmp_path / "train.py")
    assert done.returncode == 0, done.stderr
    hosts = done.stdout.splitlines()
    assert set(hosts) == {"listens 0100007F"} and len(hosts) >= 4  # two workers, server, scheduler


# --- Runs that no launcher watches -------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def unwatched(request, tmp_path_factory):
    """These runs, by fault. They mostly wait, so they begin before the other tests."""
    mine = (item for item in request.session.items if item.path == request.path)
    parameters = (getattr(item, "callspec", None) for item in mine)
    faults = [each.params["unseen"] for each in parameters if each and "unseen" in each.params]
    variables = {"PS_HEARTBEAT_TIMEOUT": "5", "TOFU_TIMEOUT": "60"}
    runs = {}
    try:
        for fault in faults:
            folder = tmp_path_factory.mktemp(fault)
            runs[fault] = roles(folder, [faulty(folder, fault)], **variables)
        yield runs
    finally:
        for process in (process for run in runs.values() for process in run):
            process.kill()
            process.communicate()


@pytest.mark.whole(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("unseen", ["kill", "exit"])
def test_heartbeats_tell_of_a_dead_process(unwatched, unseen):
    """Servers and scheduler run the script up to its import."""
    done = [(*each.communicate(timeout=LIMIT_S), each.returncode) for each in unwatched[unseen]]
    (_, scheduler, _), (_, server, _), (out, alive, _), (other, _, _) = done
    assert out.startswith("trained 0 ") and other.startswith("trained 1 ")
    assert all(code != 0 for *_, code in done)
    assert done[-1][-1] == (5 if unseen == "exit" else -signal.SIGKILL)
    rank = int(other.split()[2])
    assert f"tofu: scheduler: no heartbeat from worker process {rank} for 5 s" in scheduler
    for told in (server, alive):
        assert "no heartbeat from the scheduler for 5 s, which ends when a process" in told


@pytest.mark.slow
@pytest.mark.parametrize("unseen", ["plain"])
def test_a_process_without_the_switch_is_named(unwatched, unseen):
    scheduler, server, tofu, _ = unwatched[unseen]
    told = server.communicate(timeout=LIMIT_S)[1]
    assert re.match(
        r"tofu: server: MXNET_GRAPH_PASS=tofu is not set in worker process [01], which has",
        told,
    )
    assert told.count("\n") == 1
    assert [each.wait(LIMIT_S) for each in (server, scheduler, tofu)] == [1, 1, 1]
