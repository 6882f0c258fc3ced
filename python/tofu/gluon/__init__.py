"""Gluon on tofu: hybridized blocks run partitioned, and scripts need no changes.

    import tofu
    tofu.enable(workers=4)     # or MXNET_GRAPH_PASS=tofu TOFU_WORKERS=4 in the environment

From then on tofu partitions a hybridized block at its first call. Its parameters
live as tiles on the workers, and ``gluon.Trainer`` updates the tiles.
"""

from .switch import disable, enable

__all__ = ["disable", "enable"]
