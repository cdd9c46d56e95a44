"""Random programs beside the least time of any program in their runtime.

``runtime_bounds.py [COUNT] [SEED]``: programs of all targets on catalogue and irregular machines,
under the same model as the bound. None may be quicker than its bound; some attain it.
"""

import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from random_forms import random_form

from weft.synth.bounds import runtime_bound

COUNT = 2000
NEAR = 1e-9


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    dice = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    seen: Counter[str] = Counter()
    least, below = float("inf"), list[str]()
    while seen["programs"] < count:
        form = random_form(dice)
        if form is None:
            seen["not expressible"] += 1
            continue
        bound = runtime_bound(form.topology, form.collective, form.size, form.runtime, form.choice)
        ratio = bound.over(form.time_us)
        least = min(least, ratio)
        seen.update(("programs", form.runtime, bound.argument))
        seen["attained"] += abs(ratio - 1) <= NEAR
        if ratio < 1 - NEAR:
            below.append(f"{ratio:.6f} of {bound}: {form.told}")
    print(*below, sep="\n")
    print(f"least time ÷ bound {least:.9f}, {len(below)} below; {dict(seen)}")
    return bool(below)


if __name__ == "__main__":
    sys.exit(main())
