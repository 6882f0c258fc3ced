"""Traced modules as data: their state, graphs and strategies, and the plan of one."""
