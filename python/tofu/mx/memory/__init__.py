"""Predicts what MXNet allocates for a training step, without allocating anything."""
