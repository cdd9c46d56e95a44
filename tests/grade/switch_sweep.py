"""Random fabrics with random capabilities of their switches, by Hypothesis: 200 (or ``COUNT``),
most of them with switches that compute, half of them such that what a switch lacks often gains.

On each: no verified schedule is below a bound, no added capability lowers the rate, proved optima
equal the packings that attain them (of small machines against every pair of trees). On every fourth
the engine ``packing`` itself is asked with capabilities and without: never slower, and without any
the bytes of a machine that never had one. ``switch_sweep.py COUNT FIRST`` starts at another draw.
"""

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from casts import able_fabrics, able_machines, lacking_fabrics
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from switch_checks import check_answers, check_rates

from weft.dsl.nouns.topology import Topology

ASKED = 4
"""The engine is asked on one of so many."""


def main() -> int:
    """Print what was found; an assertion fails where something does not hold."""
    count, first = (int(x) for x in (*sys.argv[1:], *("200", "0")[len(sys.argv) - 1 :]))
    seen: Counter[str] = Counter()
    started = time.process_time()

    @seed(first)
    @settings(
        max_examples=count,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
    )
    @given(st.one_of(able_machines(), able_fabrics(), lacking_fabrics(), lacking_fabrics()))
    def fabric(machine: Topology) -> None:
        found = check_rates(machine)
        seen["fabrics"] += 1
        seen["with switches that compute"] += any(node.computes for node in machine.nodes)
        seen["optima proved of rooted schedules"] += found.proved
        seen["bounds of all schedules met"] += found.met
        seen["capabilities added"] += found.added
        seen["of them with a gain"] += found.helped
        if seen["fabrics"] % ASKED == 0:
            check_answers(machine)
            seen["answers of the engine"] += 1
        if seen["fabrics"] % 10 == 0:
            print(dict(seen), f"{time.process_time() - started:.0f} CPU s", flush=True)

    fabric()
    print(f"{dict(seen)}: all hold, {time.process_time() - started:.0f} CPU s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
