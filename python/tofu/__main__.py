"""``python -m tofu``: the command ``tofu``."""

from tofu.cli import main

main()
