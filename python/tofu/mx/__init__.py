"""MXNet: the graphs that it trains (``build``), running them (``run``), their memory (``memory``).

Only this package and the Gluon layer above it know MXNet. Importing a module of it imports
mxnet; ``import tofu`` alone does not.
"""
