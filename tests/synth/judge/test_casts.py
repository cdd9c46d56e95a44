"""The verifier of casts: right ones pass, and each kind of mistake is told."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from casts import FREE, NVLS, TURNING, down, racks, star, two_shot, up, up_and_down

from weft.dsl.nouns.capabilities import as_fields
from weft.dsl.nouns.casts import Cast, Casts
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.parts import Node
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Link, Topology, gpu, switch
from weft.synth.judge.verify import verify
from weft.synth.steiner.packing import cast_packing


@pytest.mark.parametrize("able", [NVLS, FREE, TURNING])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_what_switches_sum_and_copy_is_an_allreduce(able: str, ranks: int):
    verdict = verify(two_shot(ranks, able))
    assert verdict.ok, verdict.problems
    assert verdict.casts == (ranks if able == TURNING else 2 * ranks)


def test_a_tree_goes_up_and_down_through_the_same_switches_in_one_cast():
    verdict = verify(up_and_down())
    assert verdict.ok, verdict.problems


def changed(of: Schedule, change: Callable[[Cast], Cast | None], which: int = 1) -> Schedule:
    rows = [change(one) if i == which else one for i, one in enumerate(of.casts)]
    return replace(of, casts=Casts.of(one for one in rows if one is not None))


def on(machine: Topology, of: Schedule) -> Schedule:
    return replace(of, topology=machine)


SUM = two_shot(4)
TREE = up_and_down()


def along(*links: int) -> Schedule:
    return changed(TREE, lambda c: replace(c, links=links), 0)


def passed_on(*able: tuple[str, ...], links: tuple[int, ...]) -> Schedule:
    """Allreduce of three ranks in one cast over two switches in a row. Links 2r and 2r + 1 join
    rank r and the first one, 6 and 7 it and the second, 8 + r lead from that to rank r."""
    nodes = (*map(gpu, range(3)), *(able_switch(f"sw{k}", *w) for k, w in enumerate(able)))
    ends = [(a, b) for r in (0, 1, 2, 4) for a, b in ((r, 3), (3, r))]
    ends = [*ends[:6], *reversed(ends[6:]), (4, 0), (4, 1), (4, 2)]
    machine = Topology("row", nodes, tuple(Link(a, b, Fraction(1), Fraction(1)) for a, b in ends))
    return Schedule.of(machine, make("allreduce", 3), [], casts=[Cast(0, ALL, ALL, links)])


def able_switch(name: str, *words: str) -> Node:
    return replace(switch(name), **as_fields(words))


ALL = (0, 1, 2)
BOTH = ("multicast", "reduces")
THROUGH = (0, 2, 4, 6, 8, 9, 10)
"""Up to the first switch, on to the second, and down from there."""
BACK = (0, 2, 4, 6, 7, 1, 3, 5)
"""Up to the first switch, to the second, back, and down from the first."""


@pytest.mark.parametrize(
    ("able", "links"),
    [
        (((*BOTH, "turns"), ("multicast",)), THROUGH),
        ((("reduces",), (*BOTH, "turns")), THROUGH),
        ((BOTH, (*BOTH, "turns")), BACK),
    ],
)
def test_a_sum_is_copied_behind_a_switch_that_turns_it_round(
    able: tuple[tuple[str, ...], ...], links: tuple[int, ...]
):
    verdict = verify(passed_on(*able, links=links))
    assert verdict.ok, verdict.problems


def test_a_switch_that_turns_sums_round_needs_no_issuer_and_no_other_acts_without():
    able = (*BOTH, "turns", "issuer_in_group")
    pushed = two_shot(4, "+".join(able))
    assert verify(pushed).ok
    packing = cast_packing(pushed.topology)
    assert packing is not None
    assert packing.us_per_byte * 450_000 == 1  # M / b
    twice = passed_on(able, able, links=THROUGH)
    assert "acts for one" in " ".join(verify(twice).problems)


WRONG = [
    # Else a rank would have to be the root, and what is proved of roots would not hold.
    (passed_on(("reduces",), ("multicast",), links=THROUGH), "sw1 copies a sum and does not turn"),
    (passed_on(BOTH, (), links=BACK), "sw0 copies a sum and does not turn"),
    (passed_on(("reduces", "turns"), ("multicast",), links=THROUGH), "does not turn"),
    (changed(SUM, lambda c: replace(c, sources=c.sources[:-1])), "takes no part on that side"),
    (
        changed(SUM, lambda c: replace(c, sources=c.sources[:-1], links=(0, 2, 4, 3))),
        "lacks the contributions of 3",
    ),
    (changed(SUM, lambda c: replace(c, links=(0, 2, 4, 6))), "end at hub, a switch"),
    (changed(SUM, lambda c: replace(c, links=(3, 0, 2, 4, 6))), "stands before one that leads"),
    (changed(SUM, lambda c: replace(c, links=(*c.links, 3))), "has 2 of its links"),
    (changed(SUM, lambda c: replace(c, issuer=2)), "has its issuer in the group"),
    (changed(SUM, lambda c: replace(c, issuer=-1)), "expected an issuer"),
    (changed(SUM, lambda c: replace(c, reduce=True)), "in a sum twice"),
    (changed(SUM, lambda c: None), "lacks the contributions"),
    (changed(SUM, lambda c: replace(c, chunk=2)), "also gets chunk 2|lacks"),
    (changed(SUM, lambda c: replace(c, destinations=(1, 2))), "needs one"),
    (changed(SUM, lambda c: replace(c, step=0), 5), "contributions|in that step"),
    (on(star(4, "multicast+issuer_in_group"), SUM), "does not reduce"),
    (on(star(4, "reduces+issuer_in_group"), SUM), "does not multicast"),
    (on(star(4, FREE), two_shot(4, TURNING)), "does not turn"),
    (along(0, 2, 8, 9, 4, 6, 12, 1, 3, 13, 5, 7), "lacks that of ranks 2, 3"),
    (along(0, 2, 8, 4, 6, 12, 9, 1, 3, 13), "last goes nowhere"),
    (along(0, 2, 8, 4, 6, 12, 9, 8, 9, 1, 3, 13, 5, 7), "passes leaf0 3 times"),
    (along(0, 2, 8, 10, 4, 6, 12, 14, 9, 11, 1, 3, 13, 15, 5, 7), "copies meet again at leaf0"),
    (on(racks("spine"), TREE), "what rank 0 gets lacks"),
]


@pytest.mark.parametrize(("schedule", "says"), WRONG)
def test_mistakes_are_told(schedule: Schedule, says: str):
    verdict = verify(schedule)
    assert not verdict.ok
    assert any(part in problem for problem in verdict.problems for part in says.split("|")), (
        verdict.problems
    )


def test_where_no_switch_computes_there_are_no_casts():
    """Legs of a cast beside a transfer, which holds all its links at once, would be done 1 µs
    before the bound: that of such a machine knows transfers alone."""
    machine, c = star(3, "none"), make("gather", 3)
    sent = Transfer(1, 1, 0, (up(1), down(0)))
    cast = Cast(2, (2,), (0,), (up(2), down(0)))
    verdict = verify(Schedule.of(machine, c, [sent], casts=[cast]))
    assert any("so it is a transfer" in problem for problem in verdict.problems)


def test_a_switch_keeps_as_many_groups_as_it_has():
    free = two_shot(4, FREE)
    hub = free.topology.nodes[4]
    few = replace(hub, limits=replace(hub.limits, groups=3))
    assert verify(free).ok
    machine = replace(free.topology, nodes=(*free.topology.nodes[:4], few))
    assert "4 groups of hub, which has 3" in " ".join(verify(on(machine, free)).problems)
    least = replace(hub, limits=replace(hub.limits, least=4))
    machine = replace(free.topology, nodes=(*free.topology.nodes[:4], least))
    assert "a group of 3 of hub" in " ".join(verify(on(machine, free)).problems)


def test_members_that_lack_their_part_are_told_and_transfers_may_bring_it():
    machine, c = star(3, FREE), make("reduce", 3, roots=[0])
    late = Cast(0, (0, 1), (2,), (up(0), up(1), down(2)), 0, reduce=True)
    back = Transfer(0, 2, 0, (up(2), down(0)), 1)
    assert verify(Schedule.of(machine, c, [back], casts=[late])).ok
    scatter = make("broadcast", 3, roots=[0])
    early = Cast(0, (1,), (2, 0), (up(1), down(2), down(0)), 0)
    sent = Transfer(0, 0, 1, (up(0), down(1)), 0)
    problems = verify(Schedule.of(machine, scatter, [sent], casts=[early])).problems
    assert "one of its sources holds nothing" in problems[0]
    assert verify(Schedule.of(machine, scatter, [sent], casts=[replace(early, step=1)])).ok


def test_copies_that_one_plain_switch_passes_on_are_several_members():
    """Two ranks below a leaf that only forwards are summed by the spine: a group of two."""
    nodes = (*map(gpu, range(3)), switch("leaf"), replace(switch("spine"), reduces=True))
    ends = [(0, 3), (1, 3), (3, 4), (4, 2), (2, 4), (4, 3), (3, 0), (3, 1)]
    machine = Topology("tree", nodes, tuple(Link(a, b, Fraction(1), Fraction(1)) for a, b in ends))
    cast = Cast(0, (0, 1), (2,), (0, 1, 2, 2, 3), 0, True, 2)
    problem = make("reduce", 3, roots=[2])
    assert verify(Schedule.of(machine, problem, [], casts=[cast])).ok
