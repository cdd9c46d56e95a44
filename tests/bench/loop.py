"""The closed loop on this machine: profile MPI ranks, synthesize for what was measured, run it.

Prints, as a Markdown table, what each plan takes by the prediction and by the clock. The topology
is profiled anew unless one is given. Run it on a quiet machine:

    python tests/bench/loop.py [--ranks 8] [--time 60s] [--topology machine.json] [--repeat 30]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 24)

CLASSICS = ("ring", "recursive_doubling", "one_shot")
"""The alternatives that everybody has."""


def weft(*arguments: object, good: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """What a command says with ``--json``."""
    command = [sys.executable, "-m", "weft.backends.cli", *map(str, arguments), "--json", "-q"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode not in good:
        sys.exit(f"{' '.join(command)}\n{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def classics(collective: str, ranks: int) -> list[str]:
    """Those that there are for so many ranks."""
    texts = []
    for name in CLASSICS:
        options = (
            f"ranks={ranks}" if name == "one_shot" else f"collective={collective},ranks={ranks}"
        )
        text = f"classic:{name}{{{options}}}"
        if weft("check", text, good=(0, 1, 2))["status"] == "ok":
            texts.append(text)
    return texts


def synthesized(machine: Path, collective: str, size: int, folder: Path, effort: str) -> Path:
    """The best schedule for a size, by its predicted time."""
    file = folder / f"weft-{size}.json"
    weft(
        "synth",
        "-t",
        machine,
        "-c",
        collective,
        "--objective",
        "time",
        "--size",
        f"{size}B",
        "--effort",
        effort,
        "-o",
        file,
    )
    return file


def main() -> None:
    """Profile, synthesize, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--collective", default="allreduce")
    parser.add_argument("--time", default="60s", help="of the profile")
    parser.add_argument("--effort", default="20", help="of each synthesis")
    parser.add_argument("--topology", type=Path, help="instead of a profile")
    parser.add_argument("--overhead", default="0us", help="with --topology: what its notes say")
    parser.add_argument("--repeat", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machine = args.topology or folder / "machine.json"
        overhead = args.overhead
        if not args.topology:
            found = weft(
                "profile", "--on", "mpi", "--ranks", args.ranks, "--time", args.time, "-o", machine
            )
            for note in found["notes"]:
                print(f"* {note}")
            overhead = f"{found['overhead_us']}us"
        tell(args, machine, overhead, folder)


def tell(args: argparse.Namespace, machine: Path, overhead: str, folder: Path) -> None:
    """The table, and how good predictions and choices were."""
    others = classics(args.collective, args.ranks)
    print("\n| bytes | plan | predicted µs | measured µs | error | against MPI |")
    print("|---|---|---|---|---|---|")
    errors: list[float] = []
    lost = 0
    for size in SIZES:
        plan = synthesized(machine, args.collective, size, folder, args.effort)
        rows = weft(
            "bench",
            plan,
            *others,
            "--on",
            "mpi",
            "--sizes",
            f"{size}B",
            "--repeat",
            args.repeat,
            "-t",
            machine,
            "--overhead",
            overhead,
        )["sizes"]
        own = next((x["us"] for x in rows if x["name"] == "MPI"), None)
        for x in rows:
            cells = ["", ""]
            if "error" in x:
                errors.append(abs(x["error"]))
                cells = [f"{x['predicted_us']:.1f}", f"{x['error']:+.0%}"]
            ratio = f"{own / x['us']:.2f}" if own else ""
            print(
                f"| {x['bytes']} | {x['name']} | {cells[0]} | {x['us']:.1f} | {cells[1]} "
                f"| {ratio} |",
                flush=True,
            )
        ours = [x for x in rows if x["name"] != "MPI"]
        # Synthesis knows no overhead of messages; the prediction does, and so chooses among all.
        chosen = min(ours, key=lambda x: x["predicted_us"])
        lost += chosen["us"] >= max(x["us"] for x in ours if x is not chosen)
    print(
        f"\nPredictions are off by {statistics.median(errors):.0%} in the median, at most by "
        f"{max(errors):.0%}. The plan with the least predicted time was "
        f"the slowest of all plans at {lost} of {len(SIZES)} sizes."
    )


if __name__ == "__main__":
    main()
