"""The verbs as one calls them in Python: texts such as ``"1MiB"`` and ``"dgx1"`` are read, numbers
are checked, and no printing."""
