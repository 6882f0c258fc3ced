"""Binding partitioned graphs to MXNet executors and running them."""
