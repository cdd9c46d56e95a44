"""Sizes at which tuned libraries change algorithm and protocol, beside published thresholds.

    python tests/grade/crossovers.py [MACHINE …]

Allreduce on eight GPUs by classic algorithms, timed by the calibrated model. Exit code 1 where a
size differs from the published one by more than a factor of two.
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from weft.backends.cli import main as weft
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.library import Tuned, TunedPlan, read

WITHIN = 2.0
SIZES = "1KiB:16MiB"


@dataclass(frozen=True)
class Threshold:
    """A published size, the last for what is before; and how to ask for ours."""

    machine: str
    what: str
    protocols: str
    before: Callable[[TunedPlan], bool]
    bytes: int
    source: str
    target: str = "msccl"


def one_shot(plan: TunedPlan) -> bool:
    """Return True if every rank sends its whole buffer to all others."""
    return plan.candidate.startswith(("one_shot", "one shot"))


def packets(plan: TunedPlan) -> bool:
    """Return True if data travel with flags."""
    return plan.protocol == "LL"


SHOTS, GIVES_WAY = "one-shot to two-shot", "LL to Simple"
SELECTOR = "MSCCL++, algorithm_selector.cc"
VLLM = "vLLM, csrc/custom_all_reduce.cuh (ONNX Runtime: 500 kB)"
RCCL_FILES = "ROCm/rccl, tools/msccl-algorithms"

PUBLISHED = (
    Threshold("dgx-h100", f"{SHOTS}, LL", "LL", one_shot, 16 << 10, SELECTOR),
    Threshold("dgx-a100", f"{SHOTS}, LL", "LL", one_shot, 16 << 10, SELECTOR),
    Threshold("dgx-h100", f"{SHOTS}, Simple", "Simple", one_shot, 256 << 10, VLLM),
    Threshold("dgx-a100", f"{SHOTS}, Simple", "Simple", one_shot, 256 << 10, VLLM),
    Threshold("dgx-h100", GIVES_WAY, "LL,Simple", packets, 1 << 20, SELECTOR),
    Threshold("dgx-a100", GIVES_WAY, "LL,Simple", packets, 1 << 20, SELECTOR),
    Threshold("mi300x", GIVES_WAY, "LL,Simple", packets, 512 << 10, RCCL_FILES, "rccl"),
)


def tuned(one: Threshold, folder: Path) -> Tuned:
    """Return the library for a machine and some protocols, made once."""
    made = folder / f"{one.machine}-{one.protocols}"
    if not made.exists():
        asked = ["-t", one.machine, "-c", "allreduce", "--sizes", SIZES, "-e", "classic"]
        how = ["--protocols", one.protocols, "--model", "calibrated", "--target", one.target]
        with redirect_stdout(io.StringIO()):
            code = weft(["tune", *asked, *how, "--placement", "out", "-o", str(made), "-q"])
        if code:
            raise SystemExit(code)
    return read(made).tuned[0]


def last(plans: tuple[TunedPlan, ...], before: Callable[[TunedPlan], bool]) -> int:
    """Return the largest message of a plan for which something holds; 0: there is none."""
    return max((plan.high for plan in plans if before(plan)), default=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machines", nargs="*", help="of those in the table; all by default")
    args = parser.parse_args()
    wrong = 0
    print("| machine | change | here, up to | published | factor | source |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for one in PUBLISHED:
            if args.machines and one.machine not in args.machines:
                continue
            ours = last(tuned(one, Path(scratch)).plans, one.before)
            factor = max(ours / one.bytes, one.bytes / ours) if ours else float("inf")
            wrong += factor > WITHIN
            here, theirs = format_bytes(ours), format_bytes(one.bytes)
            cells = (one.machine, one.what, here, theirs, f"{factor:.2f}", one.source)
            print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
