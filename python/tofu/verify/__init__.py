"""Strategies checked on the real operators: run whole and by parts, and compared.

``cases`` holds example calls of every described operator, ``run`` runs one of them. It
knows MXNet; importing this package alone does not import it.
"""
