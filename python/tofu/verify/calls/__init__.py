"""Example calls of every described operator, as data: attributes, shapes, kinds of values."""
