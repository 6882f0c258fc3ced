"""MXNet: makes graphs (``graphs``), runs them (``run``), and predicts their memory (``memory``).

Only this package and the layers above it know MXNet. Importing one of its modules
imports mxnet; ``import tofu`` alone does not.
"""
