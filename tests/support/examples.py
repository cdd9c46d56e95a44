"""Numbers of random examples of a test: a share of its own for each change, many when thorough.

``make sweep`` tries many (``pytest --hypothesis-profile thorough``).
"""

from hypothesis import settings

THOROUGH = 500
"""Examples of a test that does not say how many, in the profile of this name."""

SHARE = 3
"""A change tries one in this many of the examples that a test names, but at least ``LEAST``."""
LEAST = 8


def examples(few: int, many: int = 100) -> int:
    """Return the examples of a test: ``many`` in the thorough profile, else a share of ``few``."""
    asked = settings.default
    assert asked is not None
    return many if asked.max_examples >= THOROUGH else min(few, max(LEAST, few // SHARE))
