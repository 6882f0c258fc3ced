"""``python -m tofu``: the command ``tofu``."""

from tofu.cli.main import main

main()
