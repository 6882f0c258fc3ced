"""Decides plans: the search and its objective, limits of memory, and sweeps over many searches."""
