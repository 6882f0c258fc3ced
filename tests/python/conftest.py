"""What all tests need before MXNet is imported."""

import os

# One thread an operator: runs are compared, and workers run beside each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
