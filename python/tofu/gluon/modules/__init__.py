"""The Module API: executors that run partitioned, and their update."""
