"""Updates of tiled parameters: the Trainer, over several processes too, and its states."""
