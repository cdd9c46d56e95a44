"""Bounds, packings and the judge of casts against all that can be done on a star of three ranks."""

from fractions import Fraction
from itertools import combinations, product

import pytest
from star_optimum import Star

from weft.dsl.nouns.capabilities import as_fields
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.parts import Node, NodeKind
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Link, Topology, gpu
from weft.synth.bounds.bounds import bandwidth_bound
from weft.synth.judge.casts import cast_problems, cast_shape_problems

EVEN = (50, 50, 50)
ABLE = (
    "multicast reduces multicast+reduces multicast+reduces+issuer_in_group "
    "multicast+reduces+turns multicast+reduces+turns+issuer_in_group"
).split()


def machine_of(star: Star) -> Topology:
    """Link r leads from rank r to the switch, 3 + r back."""
    n = star.ranks
    ups = [Link(r, n, Fraction(w)) for r, w in enumerate(star.up)]
    downs = [Link(n, r, Fraction(w)) for r, w in enumerate(star.down)]
    hub = Node("hub", NodeKind.SWITCH, **as_fields(star.able))
    return Topology("star", (*map(gpu, range(n)), hub), (*ups, *downs))


@pytest.mark.parametrize("able", ABLE)
@pytest.mark.parametrize(("up", "down"), [(EVEN, EVEN), ((50, 25, 100), (25, 50, 100))])
def test_no_schedule_is_below_the_bound_and_the_packing_is_the_best(
    able: str, up: tuple[int, ...], down: tuple[int, ...]
):
    star = Star(up, down, frozenset(able.split("+")))
    machine = machine_of(star)
    found = bandwidth_bound(machine, make("allreduce", 3))
    best = star.time()
    assert found.attainable is not None
    assert float(found.us_per_byte) * 10**6 <= best * (1 + 1e-9)
    assert float(found.attainable) * 10**6 == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("able", ABLE[2:])
def test_the_judge_allows_the_casts_that_a_switch_can_do(able: str):
    star = Star(EVEN, EVEN, frozenset(able.split("+")))
    machine, collective = machine_of(star), make("allreduce", 3)
    some = [c for k in range(3) for c in combinations(range(3), k + 1)]
    for sources, destinations, issuer in product(some, some, range(-1, 3)):
        cast = Cast(
            0, sources, destinations, (*sources, *(3 + r for r in destinations)), issuer=issuer
        )
        schedule = Schedule.of(machine, collective, [], casts=[cast])
        told = [*cast_shape_problems(schedule), *cast_problems(schedule)]
        assert star.allows(sources, destinations, issuer) == (not told), (cast, told)
