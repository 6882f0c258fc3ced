"""MXNet: building graphs (``build``), running them (``run``), and their memory (``memory``).

Only this package and the Gluon layer above it know MXNet. Importing one of its modules
imports mxnet; ``import tofu`` alone does not.
"""
