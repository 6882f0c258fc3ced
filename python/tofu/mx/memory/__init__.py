"""Predicts MXNet's allocations for a training step, without allocating anything."""
