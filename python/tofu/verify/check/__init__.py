"""Verdicts on operators: which of their strategies are true, which false, which missing."""
