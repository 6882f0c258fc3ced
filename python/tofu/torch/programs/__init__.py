"""A rank's program of a plan: its steps, their order, what runs them and measures their memory."""
