"""Finding strategies by trying them, and writing descriptions from what was found."""
