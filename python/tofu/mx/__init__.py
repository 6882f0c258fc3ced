"""The room that knows MXNet: training graphs, executors, tiles.

Importing it imports mxnet; ``import tofu`` alone does not.
"""
