"""Blocks: traces them, has their graphs planned, and runs their programs."""
