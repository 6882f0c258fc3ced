"""Gluon on tofu: blocks run partitioned, and scripts stay unchanged.

    import tofu
    tofu.enable(workers=4)     # or MXNET_GRAPH_PASS=tofu TOFU_WORKERS=4 in the environment

From then on a block is partitioned when a script first calls it, or first trains it if the
script never hybridizes it. Its parameters live as tiles on the workers, and
``gluon.Trainer`` updates the tiles.
"""

from .switch import disable, enable

__all__ = ["disable", "enable"]
