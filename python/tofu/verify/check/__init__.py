"""Verdicts on operators: which of their strategies are true, false or missing."""
