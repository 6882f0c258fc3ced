"""tofu: partitions the training of PyTorch modules and MXNet Gluon scripts over several workers.

PyTorch: ``tofu.torch.parallelize(model, (2, 4), inputs)`` under torchrun (``import tofu.torch``).

MXNet's scripts need no tofu code: ``MXNET_GRAPH_PASS=tofu TOFU_WORKERS=4 python train.py``.
In a notebook::

    import tofu

    tofu.enable(workers=4)
    print(tofu.plan("mlp", workers=4))

``tofu.op``, ``tofu.Sum``, ``tofu.Max``, ``tofu.Min``, ``tofu.Prod`` and ``tofu.Opaque``
describe operators in the paper's language. Importing tofu is cheap: it loads neither MXNet
nor anything else that is large, and each of these names on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tofu.errors import (
    ConfigError,
    GraphError,
    InconclusiveError,
    InternalError,
    PlanError,
    TdlError,
    TofuError,
)

if TYPE_CHECKING:
    from tofu.analysis import analyze
    from tofu.gluon import disable, enable
    from tofu.lang import Max, Min, Opaque, Prod, Sum, op
    from tofu.mx.model import plan

__all__ = [
    "ConfigError",
    "GraphError",
    "InconclusiveError",
    "InternalError",
    "Max",
    "Min",
    "Opaque",
    "PlanError",
    "Prod",
    "Sum",
    "TdlError",
    "TofuError",
    "__version__",
    "analyze",
    "disable",
    "enable",
    "op",
    "plan",
]

_HOME = {
    "__version__": "tofu.installation",
    "analyze": "tofu.analysis",
    "disable": "tofu.gluon",
    "enable": "tofu.gluon",
    "plan": "tofu.mx.model",
    **dict.fromkeys(("Max", "Min", "Opaque", "Prod", "Sum", "op"), "tofu.lang"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tofu' has no attribute {name!r}")
    if _HOME[name] == "tofu.gluon":
        from tofu import installation, uncaught

        uncaught.end_runs()
        installation.check_mxnet(f"tofu.{name}", load=True)
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
