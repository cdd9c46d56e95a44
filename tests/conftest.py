"""Settings for the whole suite."""

import os

import pytest
from hypothesis import settings

# No deadline: a loaded machine is not a bug. Derandomized: a red run must be red again.
settings.register_profile("weft", deadline=None, derandomize=True)
settings.load_profile("weft")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of files that are not ours, unless a folder of such files is named."""
    if "WEFT_SHARED" in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("shared")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("shared")]
