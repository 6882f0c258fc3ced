"""Predicting what MXNet allocates for a training step, before it allocates anything."""
