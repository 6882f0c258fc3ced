"""Tensors on ranks: tiles and their exchange, parameters as DTensors, and what kernels take."""
