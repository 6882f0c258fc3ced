"""The session: settings and state from ``enable`` to ``disable``, open to the rest of gluon."""
