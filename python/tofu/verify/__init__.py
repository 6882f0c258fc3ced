"""Checks strategies on the real operators: each is run whole and in parts, and compared.

``calls`` holds example calls of every described operator, ``run`` runs one whole and in parts,
``find`` searches for strategies that an analysis missed, ``check`` passes a verdict on an
operator, and ``inventory`` counts them all. Running needs MXNet; importing this package does not.

A file that describes operators lists calls of its own with ``In`` and ``case``::

    from tofu.verify import In, case

    CASES = [case("Custom:my_dot", In((6, 4)), In((4, 5)))]
"""

from tofu.verify.calls.samples import In, case

__all__ = ["In", "case"]
