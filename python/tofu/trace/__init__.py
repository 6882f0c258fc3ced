"""Runs a script with MXNet's profiler, and says what bounds a training step (``tofu trace``).

``record`` is the process that runs the script, ``labels`` tells the profiler's operators apart,
and ``timeline`` orders them by worker and adds them up.
"""
