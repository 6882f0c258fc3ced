"""Example calls of every described operator."""
