"""Settings that all tests need before MXNet is imported."""

import os

# Tests compare runs of one thread; this graph rewrite would change what runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_ELIMINATE_COMMON_EXPR", "0")
