"""All operators of MXNet: which are described, which were verified, what the rest lacks."""
