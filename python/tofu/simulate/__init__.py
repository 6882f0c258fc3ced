"""Simulates training steps on described machines, and measures machines to describe them."""
