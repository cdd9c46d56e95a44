"""Settings for the whole suite."""

import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable

import pytest
from examples import SHARE, THOROUGH
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# No deadline: a loaded machine is not a bug. Derandomized: a red run must be red again. The same
# examples are tried in every run; `make sweep` tries ten times as many.
settings.register_profile("weft", deadline=None, derandomize=True, max_examples=50 // SHARE)
settings.register_profile("thorough", settings.get_profile("weft"), max_examples=THOROUGH)
settings.load_profile("weft")
# Random examples are of their test alone. Hypothesis mixes in constants of every module that has
# been imported by then: examples differed with the tests before them, for 4 CPU seconds a process.
setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010


KEEP_TIME = {"asyncio", "dask", "distributed", "tornado"}
"""Packages that see the true time where clocks jump: Dask gives up peers by the clock, and that is
Dask's to mend."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of clocks that jump."""
    parser.addoption(
        "--jumping-clock",
        action="store_true",
        help="let the clocks of this process jump by hours; tests of cut-offs are left out",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, which a shell lets what it starts in the background ignore; let clocks jump."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--jumping-clock"):
        settings.register_profile(
            "jumping", settings.get_profile("weft"), suppress_health_check=[HealthCheck.too_slow]
        )
        settings.load_profile("jumping")
        chance = random.Random(0)
        time.time = jumping(time.time, chance, back=True)
        time.monotonic = jumping(time.monotonic, chance)
        time.perf_counter = jumping(time.perf_counter, chance)
        time.process_time = jumping(time.process_time, chance)


def pytest_collection_finish() -> None:
    """Collect garbage more rarely, and never look at the tests themselves.

    Cycles were looked for among all that stays, syntax trees and tests: 8 of 19 CPU seconds of
    ``tests/house``, a tenth elsewhere.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def jumping(
    clock: Callable[[], float], chance: random.Random, *, back: bool = False
) -> Callable[[], float]:
    """A clock that jumps ahead by up to three hours, one time in ten; or also back."""
    ahead = 0.0

    def now() -> float:
        nonlocal ahead
        if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] in KEEP_TIME:
            return clock()
        if chance.random() < 0.1:
            ahead += 3600 * chance.uniform(-3 if back else 0, 3)
        return clock() + ahead

    return now


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests of files that are not ours, and of cut-offs where clocks jump."""
    without = []
    if "WEFT_SHARED" not in os.environ:
        without.append("shared")
    if config.getoption("--jumping-clock"):
        without.append("clock")
    kept, left_out = [], []
    for item in items:
        (left_out if any(map(item.get_closest_marker, without)) else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
