"""From a symbol to a training graph: gradients, lowerings, shapes, updates."""
