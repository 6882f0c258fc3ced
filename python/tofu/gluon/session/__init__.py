"""The session: settings and state from ``enable`` to ``disable``, used by all of gluon."""
