"""Traces modules to joint graphs that ranks can share."""
