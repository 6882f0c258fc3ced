"""The command ``tofu``."""
