"""A script for test_process_faults.py: trains, and lets process 1 meet a fault at a stage.

    python faulty_script.py FOLDER STAGE FAULT

If another process has the fault, the script writes FOLDER/reached and waits for FOLDER/done.
"""

import os
import pathlib
import resource
import signal
import sys
import time

import mxnet as mx
from mxnet import autograd, gluon

STAGES = ("start", "first", "step", "save", "end")
FOLDER, STAGE, FAULT = pathlib.Path(sys.argv[1]), *sys.argv[2:]
IS_FAULTY = os.environ["DMLC_TASK_ID"] == "1"


def reach(stage):
    if stage != STAGE or not IS_FAULTY:
        return
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif FAULT == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif FAULT == "exits":
        raise SystemExit(3)
    elif FAULT == "raises":
        raise ValueError("of the script")
    elif FAULT == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
        bytearray(2**34)
    else:
        (FOLDER / "reached").write_text(str(os.getpid()))
        until = time.monotonic() + 60
        while not (FOLDER / "done").exists() and time.monotonic() < until:
            time.sleep(0.1)


def main():
    reach("start")
    kvstore = mx.kv.create("dist_sync")
    print("connected", os.environ["DMLC_TASK_ID"], kvstore.rank, flush=True)
    net = gluon.nn.HybridSequential(prefix="net_")
    net.add(gluon.nn.Dense(8, in_units=6, activation="relu"), gluon.nn.Dense(4, in_units=8))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", kvstore=kvstore, update_on_kvstore=False)
    for step in range(4):
        reach({0: "first", 2: "step"}.get(step))
        with autograd.record():
            loss = (net(mx.nd.ones((8, 6))) ** 2).sum()
        loss.backward()
        trainer.step(16)
    reach("save")
    net.save_parameters(str(FOLDER / "net.params"))
    trainer.save_states(str(FOLDER / "net.states"))
    reach("end")


main()
