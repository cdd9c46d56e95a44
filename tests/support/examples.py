"""Numbers of random examples of a test: few where each costs much, many in the thorough profile.

``make sweep`` asks for many (``pytest --hypothesis-profile thorough``).
"""

from __future__ import annotations

from hypothesis import settings

THOROUGH = 500
"""Examples of a test that does not say how many, in the profile of this name."""


def examples(few: int, many: int = 100) -> int:
    """Return the number of examples of a test: ``many`` in the thorough profile, else ``few``."""
    asked = settings.default
    assert asked is not None
    return many if asked.max_examples >= THOROUGH else few
