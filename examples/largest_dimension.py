"""A partitioning algorithm: each step cuts every parameter along its largest dimension.

    tofu plan --workers 4 --format json mlp > mlp.json
    python largest_dimension.py mlp.json > mlp.pins
    tofu plan --workers 4 --pins mlp.pins mlp

A pin is a line: the tensor, and the dimension that each step cuts. Tofu chooses the cuts of tensors
that have no pin, so that they fit those that have one.
"""

import json
import sys


def largest_dimensions(shape, parts):
    """The dimension that each step cuts; parts are rounded up, as tofu's tiles are."""
    cuts = []
    for count in parts:
        dim = max(range(len(shape)), key=lambda d: shape[d])
        shape = [-(-size // count) if d == dim else size for d, size in enumerate(shape)]
        cuts.append(dim)
    return cuts


def main(path):
    """Print a pin for each parameter of a plan that tofu printed as JSON."""
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    parts = [step["parts"] for step in plan["steps"]]
    for tensor in plan["tensors"]:
        if tensor["node"].endswith(("_weight", "_bias")):
            cuts = largest_dimensions(tensor["shape"], parts)
            print(f"{tensor['node']}={','.join(map(str, cuts))}")


if __name__ == "__main__":
    main(sys.argv[1])
