"""Runs a script with MXNet's profiler, and finds the bound of a training step (``tofu trace``).

``profiled_run`` is the process that runs the script, ``labels`` tells the profiler's operators
apart, and ``timeline`` orders them by worker and adds up their times.
"""
