"""What the command ``tofu`` does with modules: loads, plans, checks and verifies them."""
