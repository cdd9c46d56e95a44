"""Settings for the whole suite."""

from hypothesis import settings

# No deadline: a loaded machine is not a bug. Derandomized: a red run must be red again.
settings.register_profile("weft", deadline=None, derandomize=True)
settings.load_profile("weft")
