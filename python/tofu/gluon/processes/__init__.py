"""Several processes: their connection through MXNet's parameter server."""
