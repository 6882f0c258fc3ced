"""Checks strategies on the real operators: runs each whole and in parts, and compares.

``calls`` collects the example calls and makes values for them, ``run`` runs one whole and in parts,
``find`` searches for strategies that the analysis missed, ``check`` reaches a verdict on an
operator, ``inventory`` lists them all, and ``script`` checks a whole script. Running needs MXNet;
importing this package does not.

A file that describes operators lists its own calls with ``In`` and ``case``::

    from tofu.verify import In, case

    CASES = [case("Custom:my_dot", In((6, 4)), In((4, 5)))]
"""

from tofu.lang.example_calls import In, case

__all__ = ["In", "case"]
