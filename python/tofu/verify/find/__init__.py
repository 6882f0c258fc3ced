"""Finds strategies by running an operator, and writes a description from the valid ones."""
