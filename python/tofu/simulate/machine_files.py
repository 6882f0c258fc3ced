"""Machine files, which tofu.plan finds, for the modules of this package and their users."""

from tofu.plans.machine_files import read_machine, shipped_machines

__all__ = ["read_machine", "shipped_machines"]
