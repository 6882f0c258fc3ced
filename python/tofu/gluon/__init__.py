"""Gluon on tofu: hybridized blocks run partitioned, scripts stay as they are.

    import tofu
    tofu.enable(workers=4)     # or MXNET_GRAPH_PASS=tofu TOFU_WORKERS=4 in the environment

From then on a hybridized block is partitioned when it is first called, its
parameters live as tiles on the workers, and ``gluon.Trainer`` updates the tiles.
"""

from .switch import disable, enable

__all__ = ["disable", "enable"]
