"""Finds strategies by running an operator, and writes a description from those that hold."""
