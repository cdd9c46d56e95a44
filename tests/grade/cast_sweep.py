"""Random casts against what is proved of trees: an allreduce in one cast, or a sum at a rank and a
copy from it, that the judge accepts, costs at least what the prices of the packing prove of any.

The casts are walks of copies from switch to switch, which meet, bounce and part by chance, on
random machines: no engine's trees are behind them. ``cast_sweep.py MACHINES SEED``.
"""

import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from weft.dsl.nouns.capabilities import as_fields
from weft.dsl.nouns.casts import PUSHED, Cast
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Link, Topology, gpu, switch
from weft.synth.bounds import bounds
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify
from weft.synth.steiner.packing import cast_packing

WALKS = 400
"""Walks of each kind on a machine; most of them lead nowhere."""

STEPS = 24
"""Of a walk."""


def machine(draw: random.Random) -> Topology:
    """A few ranks on a few switches, with capabilities by chance; some links lead one way."""
    n, count = draw.choice((2, 3, 3, 4)), draw.choice((1, 2, 2, 3))
    switches = []
    for k in range(count):
        words = {word for word in ("multicast", "reduces") if draw.random() < 0.75}
        words |= {"turns"} if "reduces" in words and draw.random() < 0.5 else set()
        words |= {"issuer_in_group"} if draw.random() < 0.4 else set()
        switches.append(replace(switch(f"sw{k}"), **as_fields(words)))
    pairs = [(r, n + k) for r in range(n) for k in draw.sample(range(count), min(count, 1 + r % 2))]
    pairs += [(n + a, n + b) for a in range(count) for b in range(a) if draw.random() < 0.8]
    ends = [end for a, b in pairs for end in ((a, b), (b, a)) if draw.random() < 0.95]
    links = [Link(a, b, Fraction(draw.choice((50, 50, 25))), Fraction(1)) for a, b in ends]
    return Topology("walked", (*map(gpu, range(n)), *switches), tuple(links))


def walk(
    draw: random.Random, of: Topology, sources: Sequence[int], destinations: Sequence[int]
) -> tuple[int, ...] | None:
    """Links by which copies of all sources meet and come to all destinations; None: lost."""
    leave = defaultdict(list)
    for k, x in enumerate(of.links):
        leave[x.src].append(k)
    there: dict[int, list[frozenset[int]]] = defaultdict(list)
    links, left, everything = list[int](), set(destinations), frozenset(sources)

    def go(k: int, what: frozenset[int]) -> None:
        links.append(k)
        left.discard(of.links[k].dst)
        if of.links[k].dst >= of.ranks:
            there[of.links[k].dst].append(what)

    for s in draw.sample(sources, len(sources)):
        if not leave[s]:
            return None
        go(draw.choice(leave[s]), frozenset((s,)))
    for _ in range(STEPS):
        busy = [v for v in there if there[v]]
        if not busy:
            break
        v = draw.choice(busy)
        met = [there[v].pop(0)]
        if there[v] and draw.random() < 0.7:
            met, there[v] = [*met, *there[v]], []
        what = frozenset[int]().union(*met)
        ports = leave[v] if what == everything else []
        ways = [k for k in leave[v] if of.links[k].dst >= of.ranks]
        copies = [k for k in ports if of.links[k].dst in left and draw.random() < 0.9]
        copies += [k for k in ports if k in ways and draw.random() < 0.3]
        if not copies or draw.random() < 0.35:
            copies = [draw.choice(ways)] if ways else []
        if not copies:
            return None
        for k in copies:
            go(k, what)
    return None if left or any(there.values()) else tuple(links)


@dataclass(frozen=True)
class Kind:
    """A collective of one cast: its name, its root, and whether the root's own copy goes along."""

    name: str
    root: int = 0
    own: bool = True

    def ends(self, ranks: int) -> tuple[list[int], list[int]]:
        """Sources and destinations."""
        everybody = list(range(ranks))
        if self.name == "allreduce":
            return everybody, everybody
        side = [r for r in everybody if self.own or r != self.root]
        return (side, [self.root]) if self.name == "reduce" else ([self.root], side)

    def accepted(self, of: Topology, links: tuple[int, ...]) -> Schedule | None:
        """The schedule of a cast over these links, by the first issuer that the judge accepts."""
        sources, destinations = map(tuple, self.ends(of.ranks))
        adds = self.name == "reduce" and not self.own
        roots = () if self.name == "allreduce" else (self.root,)
        for issuer in (PUSHED, *range(of.ranks)):
            cast = Cast(0, sources, destinations, links, 0, adds, issuer)
            made = Schedule.of(of, make(self.name, of.ranks, roots=roots), [], casts=[cast])
            if verify(made).ok:
                return made
        return None


def walked(draw: random.Random, of: Topology, kind: Kind, walks: int) -> Iterator[Schedule]:
    """Yield the casts that the judge accepts."""
    seen = set()
    for _ in range(walks):
        links = walk(draw, of, *kind.ends(of.ranks))
        if links is not None and links not in seen:
            seen.add(links)
            made = kind.accepted(of, links)
            if made is not None:
                yield made


def check(draw: random.Random, of: Topology, seen: Counter[str]) -> None:
    """Walk on a machine; an assertion fails where a cast costs less than what is proved of all."""
    packing = cast_packing(of)
    if packing is None or packing.proof is None:
        return
    seen["machines"] += 1
    proof, least = packing.proof, bounds(of, make("allreduce", of.ranks)).us_per_byte

    def paid(made: Schedule) -> int:
        return sum(proof.prices[k] for cast in made.casts for k in cast.links)

    for made in walked(draw, of, Kind("allreduce"), WALKS):
        seen["allreduces"] += 1
        assert us_per_byte(made) >= least, (of, made.casts[0], least)
        assert paid(made) >= proof.least, (of, made.casts[0], proof)
    for root in range(of.ranks):
        halves = {}
        for name in ("reduce", "broadcast"):
            kinds = (Kind(name, root, own) for own in (True, False))
            costs = [paid(x) for k in kinds for x in walked(draw, of, k, WALKS // 8)]
            halves[name] = min(costs, default=None)
        if None not in halves.values():
            seen["roots"] += 1
            assert sum(filter(None, halves.values())) >= proof.least, (of, root, halves, proof)


def main() -> int:
    """Print what was looked at."""
    count, seed = (int(x) for x in (*sys.argv[1:], *("60", "0")[len(sys.argv) - 1 :]))
    draw, seen, started = random.Random(seed), Counter[str](), time.process_time()
    for _ in range(count):
        check(draw, machine(draw), seen)
    print(f"{dict(seen)}: all hold, {time.process_time() - started:.0f} CPU s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
