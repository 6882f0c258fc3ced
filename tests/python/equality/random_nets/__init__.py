"""Random Gluon nets, trained serially and partitioned, and compared.

``draw`` makes a net from a seed, ``build`` makes a block of it, ``train`` runs a script with it,
``judge`` compares two runs, and ``supervise`` runs many seeds in processes of their own.

    PYTHONPATH=tests/python python -m equality.random_nets 0-39      # compares these seeds
    PYTHONPATH=tests/python python -m equality.random_nets --show 7  # what seed 7 stands for
    PYTHONPATH=tests/python python -m equality.random_nets --shrink 7
"""
