"""Lists every operator of MXNet: its description, whether it was verified, and why not."""
