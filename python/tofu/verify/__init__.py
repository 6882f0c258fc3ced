"""Checks strategies on the real operators: each is run whole and in parts, and compared.

``calls`` holds example calls of every described operator, ``run`` runs one whole and in parts,
``find`` searches for strategies that an analysis missed, ``check`` passes a verdict on an
operator, and ``inventory`` counts them all. Running needs MXNet; importing this package does not.
"""
