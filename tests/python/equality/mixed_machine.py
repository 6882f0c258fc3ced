"""A machine file whose devices differ."""

import json

from tofu.plans.machine_files import machine_text


def mixed_machine(count, *, slowness=1.0, memory=None):
    """A machine of two hosts with `count` devices each; the second host's are a third as fast.

    Links and the host's work take next to no time.

    Args:
        count: devices of each host.
        slowness: factor by which all devices are slower than V100s.
        memory: bytes of a device of the second host; None: as many as of the first.
    """
    document = json.loads(machine_text("2x8v100"))
    device, operators = document.pop("device"), document.pop("operators")
    device.update(count=count, launch_s=0.0, synchronize_s=0.0)
    document["devices"] = []
    for name, speed in (("fast", 3 / slowness), ("slow", 1 / slowness)):
        rates = [
            {key: value if key == "kind" else speed * value[-1][1] for key, value in each.items()}
            for each in operators
        ]
        document["devices"].append({**device, "name": name, "operators": rates})
    if memory is not None:
        document["devices"][1]["memory_bytes"] = memory
    document["host"]["push_s"] = 0.0
    document["links"] = [
        {"name": name, "devices": devices, "latency_s": 0.0, "bytes_per_s": 1e13}
        for name, devices in (("inner", count), ("outer", 2 * count))
    ]
    return document
