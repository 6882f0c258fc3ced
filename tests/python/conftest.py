"""Settings that all tests need before MXNet is imported."""

import os

# Tests compare runs of one thread; MXNet's two graph rewrites would change what runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_ELIMINATE_COMMON_EXPR", "0")
os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NONE")
