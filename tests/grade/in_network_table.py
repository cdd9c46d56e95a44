"""Exact optima of machines whose switches compute, what ``bounds`` says, as
rational numbers, against values that others computed (a prototype of our own with exact
certificates). ``in_network.py`` asks the command line for schedules of most of them, too.

A row passes if the bound of all schedules, or where it is marked that of schedules that bring every
byte to one place, and what trees attain are both equal to the known value.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from in_network import FREE, GROUPS, HALF, SHARP, box, fat_tree

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.synth.bounds import bounds

AR, AG, RS = "allreduce", "allgather", "reduce_scatter"
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True)
class Known:
    """A machine, the optimum of collectives in ps per byte, and of which schedules it is one.

    Attributes:
        ranks: only the first so many; all where 0.
        rooted: of those that bring every byte to one place and spread it from there.
    """

    machine: str
    ps: str
    collectives: tuple[str, ...] = (AR,)
    ranks: int = 0
    rooted: bool = False


def boxes() -> Iterator[Known]:
    """One DGX-H100, groups of its GPUs, and a rack of GB200."""
    modes = (
        ("dgx-h100", "35/9"),
        ("dgx-h100:nvls=on", "5/2"),
        (box(FREE), "20/9"),
        (box(SHARP), "20/9"),
        (box("multicast"), "35/9"),
        (box("reduces"), "35/9"),
    )
    for machine, ps in modes:
        yield Known(machine, ps)
        yield Known(machine, "35/18", (AG, RS))
        yield Known(machine, "20/9", ROOTED)
    yield from (Known("dgx-h100:nvls=on", ps, ranks=n) for n, ps in enumerate(GROUPS, 2))
    yield Known("gb200-nvl72", "355/162")
    yield Known("gb200-nvl72", "355/324", (AG, RS))
    yield Known("gb200-nvl72:nvls=on", "365/324")
    yield Known("gb200-nvl72:nvls=on", "355/324", (AG, RS))
    yield Known(f"gb200-nvl72:capable=nvswitch0:{FREE}", "10/9")


def clusters() -> Iterator[Known]:
    """DGX-H100 and DGX-A100 on rails."""
    two, four, eight = (f"dgx-h100:nodes={n}" for n in (2, 4, 8))
    free = f",capable=nvswitch0..3:{FREE}"
    yield Known(two, "15/4")
    for options in (",nvls=on", f",capable=nvswitch0..1:{FREE}", ",sharp=all"):
        yield Known(two + options, "5/2")
    modes = (
        ("", "31/8"),
        (",nvls=on", "15/4"),
        (free, "15/4"),
        (",sharp=fabric", "155/42"),
        (",sharp=all", "5/2"),
        (",capable=nvswitch0..3:multicast,rail0..7:multicast", "31/8"),
        (",capable=nvswitch0..3:reduces,rail0..7:reduces", "31/8"),
        (f",nvls=on{HALF}", "85/22"),
        (f",capable=rail0..3:{SHARP}", "155/41"),
        (f",nvls=on,capable=rail0..3:{SHARP}", "3"),
    )
    for options, ps in modes:
        yield Known(four + options, ps)
    yield Known(f"{four},sharp=all{HALF}", "40/11", rooted=True)
    for options in ("", ",nvls=on", ",sharp=all", f",nvls=on{HALF}", f",capable=rail0..3:{SHARP}"):
        yield Known(four + options, "31/16", (AG, RS))
        yield Known(four + options, "5/2", ROOTED)
    yield from (Known(eight + options, "35/8") for options in ("", ",nvls=on"))
    yield Known("dgx-a100:nodes=4", "15/2")  # why: in_network.py, N13
    yield Known("dgx-a100:nodes=4,sharp=fabric", "155/27")


def trees(folder: Path) -> Iterator[Known]:
    """Fat trees of four hosts to a leaf, two spines, uplinks of 50 and of 25 GB/s."""
    optima = {
        50: {"": "75/2", "leaf": "20", "spine": "80/3", "leaf+spine": "20"},
        25: {"": "75/2", "leaf": "30", "spine": "32", "leaf+spine": "20"},
    }
    for up, modes in optima.items():
        for able, ps in modes.items():
            machine = fat_tree(4, up, able, folder)
            yield Known(machine, ps, rooted=able == "spine")
            yield Known(machine, "75/4", (AG, RS))
            yield Known(machine, "20", ROOTED)
    yield Known(fat_tree(4, 50, "leaf=multicast", folder), "75/2")
    yield Known(fat_tree(8, 25, "", folder), "155/4")
    yield Known(fat_tree(8, 25, "leaf", folder), "35")


def judged(one: Known) -> Iterator[tuple[str, Fraction, Fraction | None]]:
    """Yield each collective with its bound, and what is attained, in ps per byte."""
    machine = topology(one.machine)
    if one.ranks:
        machine = machine.restricted_to(range(one.ranks))
    for kind in one.collectives:
        found = bounds(machine, make(kind, machine.ranks))
        held = found.rooted if one.rooted else found
        least = Fraction(0) if held is None else held.us_per_byte
        attained = None if found.attainable is None else found.attainable * 10**6
        yield kind, least * 10**6, attained


def main(names: Sequence[str]) -> int:
    """Print a line for each optimum; 1 if one is not what is known."""
    good, rows, started = True, 0, time.process_time()
    with tempfile.TemporaryDirectory() as place:
        parts = {"boxes": boxes, "clusters": clusters, "trees": lambda: trees(Path(place))}
        for one in (row for name in names or parts for row in parts[name]()):
            for kind, least, attained in judged(one):
                fine = least == attained == Fraction(one.ps)
                good, rows = good and fine, rows + 1
                group = f" ({one.ranks} ranks)" if one.ranks else ""
                words = f"{Path(one.machine).name}{group} {kind}"
                kept = "one place" if one.rooted else "all"
                print(words, one.ps, least, attained, kept, "yes" if fine else "NO", sep="\t")
    print(f"{rows} optima, {time.process_time() - started:.0f} CPU s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
