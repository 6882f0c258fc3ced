"""Example calls of every described operator: attributes, shapes, and kinds of values."""
