"""The main job on a DGX-1, end to end: ``make demo``.

Every line that starts with ``$`` is a command that a user can type; the demo only types them:
the machine, its bounds with certificates, the frontiers, the MSCCL XML of each schedule, and the
execution of that XML on real data.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from ..frame.start import main as weft

COLLECTIVES = ("allgather", "alltoall", "broadcast", "allreduce")


def type_command(text: str) -> int:
    """Echo a command line of weft and run it in this process."""
    print(f"\n$ {text}", flush=True)
    return weft(shlex.split(text)[1:])


def commands(folder: Path) -> list[str]:
    """Return the commands up to the schedules; those on their files depend on the results."""
    lines = ["weft topo show dgx1"]
    for collective in COLLECTIVES:
        lines.append(f"weft bound -t dgx1 -c {collective}")
        lines.append(f"weft synth -t dgx1 -c {collective} -o {folder / collective}")
    return lines


def compile_and_run(folder: Path) -> list[str]:
    """Compile each schedule found to XML, out of place, and execute the file."""
    lines = []
    for schedule in sorted(folder.glob("*/*.json")):
        xml = schedule.with_suffix(".xml")
        lines.append(f"weft compile {schedule} --to msccl-xml -o {xml}")
        lines.append(f"weft run {xml} --on numpy")
    return lines


def main() -> int:
    """Run the demo in the folder ``build/demo``; nonzero if any command failed."""
    folder = Path("build") / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    codes = [type_command(line) for line in commands(folder)]
    codes += [type_command(line) for line in compile_and_run(folder)]
    xml = sorted(folder.glob("*/*.xml"))
    print(f"\n{len(xml)} MSCCL XML files, checked and executed, are in {folder}/")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
