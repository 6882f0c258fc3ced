"""Checks a whole script: trains it whole and partitioned, and compares (``tofu check``)."""
