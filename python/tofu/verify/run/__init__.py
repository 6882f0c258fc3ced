"""Runs one call of an operator in MXNet, whole and in parts."""
