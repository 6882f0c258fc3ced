"""Verdicts on operators: true, false and missing strategies."""
