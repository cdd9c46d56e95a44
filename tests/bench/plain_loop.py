"""CPU seconds of a plain Python loop: the speed of this machine now, beside other measurements.

The CPU seconds of one command differ by a factor of two between hours on a shared machine; those of
this loop differ with them.
"""

import time

TURNS = 10_000_000

USUAL_S = 0.73
"""CPU seconds of the loop on an idle core of an EPYC, CPython 3.11: limits are for such a core."""


def plain_loop_s() -> float:
    """Return the CPU seconds of the loop, now."""
    begun, total = time.process_time(), 0
    for i in range(TURNS):
        total += i * i
    return time.process_time() - begun
