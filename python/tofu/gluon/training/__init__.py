"""Training: parameters as tiles, gradients, outputs, and the Trainer that updates them."""
