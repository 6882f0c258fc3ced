"""Lists every operator of MXNet: what describes it, whether that was verified, why not."""
