"""Where GPUs outside a group could forward, it is said, with the factor of the bounds."""

import json
from fractions import Fraction

import pytest

from weft.backends.cli.work.relay_hint import forwarding
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.synth.bounds import bounds


@pytest.mark.parametrize(
    ("machine", "group", "kind", "factor"),
    [
        ("dgx1", "0,1", "allgather", "3.0 x"),  # six NVLinks in place of two
        ("dgx-a100:nodes=2", "0,8", "allreduce", "8.0 x"),  # eight rails in place of one
        ("torus:4x4", "0,1", "allgather", "4.0 x"),
    ],
)
def test_what_others_could_add_is_told(weft, machine, group, kind, factor) -> None:
    asked = ("-t", machine, "-c", kind, "--group", group)
    weft("bound", *asked).ended(0, f"could forward: {factor}")
    assert factor in json.loads(weft("bound", *asked, "--json").out)["relays"]
    assert factor in weft("synth", *asked, "-e", "classic", "--objective", "latency").err


def test_others_forward_where_they_may(weft) -> None:
    """A quad of a DGX-1: 500 µs for 100 MB over all eight, 750 by itself."""
    asked = ("-t", "dgx1", "-c", "allgather", "--group", "0..3", "--size", "100MB", "--json")
    own = json.loads(weft("bound", *asked).out)
    both = json.loads(weft("bound", *asked, "--relays", "idle").out)
    assert "--relays all" in own["relays"]
    assert "relays" not in both
    times = [Fraction(one["bound"]["seconds_per_byte"]) * 10**14 for one in (own, both)]
    assert times == [750, 500]
    search = ("--objective", "time", "-e", "packing", "--relays", "all")
    found = json.loads(weft("synth", *asked, *search).out)
    assert found["ranks"] == 8
    assert 500 <= found["value"] < 510


@pytest.mark.parametrize(
    "asked",
    [
        ("-t", "dgx1", "-c", "allgather"),  # no group
        ("-t", "dgx-a100", "-c", "allgather", "--group", "0..3"),  # each has its own port
        ("-t", "dgx1", "-c", "allgather", "--group", "0,1", "--down", "gpu0-gpu4"),
    ],
)
def test_nothing_is_said_where_nothing_is_gained_or_asked(weft, asked) -> None:
    assert "relays" not in json.loads(weft("bound", *asked, "--json").ended(0).out)


def test_others_forward_and_take_no_part() -> None:
    machine = topology("dgx1")
    around = forwarding(machine, (5, 1))
    assert (around.ranks, len(around.nodes)) == (2, 8)
    assert len(around.links) == len(machine.links)
    alone = bounds(machine.restricted_to((5, 1)), make("allgather", 2))
    assert bounds(around, make("allgather", 2)).seconds_per_byte <= alone.seconds_per_byte
