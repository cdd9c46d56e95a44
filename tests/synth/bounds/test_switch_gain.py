"""Whether switches that compute help, and what binds."""

import json
from fractions import Fraction

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.synth.bounds.switch_gain import SwitchGain, switch_gain


def gain(text: str, kind: str = "allreduce") -> SwitchGain:
    machine = topology(text)
    found = switch_gain(machine, make(kind, machine.ranks))
    assert found is not None
    return found


def test_network_cards_that_bind_hide_what_switches_in_hosts_bring():
    found = gain("dgx-h100:nodes=8,nvls=on")
    assert not found.helps
    assert found.exact
    assert found.binds_with == found.binds_without
    assert "no gain" in found.words
    assert "the NICs bind: 50 GB/s × 8 out of host 0 and 7 more" in found.words


@pytest.mark.parametrize("able", ["multicast", "reduces"])
def test_one_capability_alone_gains_nothing(able: str):
    found = gain(f"dgx-h100:capable=nvswitch0:{able}")
    assert not found.helps
    assert "the ports of GPUs bind: 450 GB/s" in found.words


def test_a_gain_names_what_binds_before_and_after():
    found = gain("dgx-h100:nodes=2,nvls=on")
    assert found.helps
    assert (found.without, found.with_them) == (Fraction(15, 4), Fraction(5, 2))
    assert found.binds_without.startswith("the NICs and the ports of GPUs bind")
    assert found.binds_with == "the NICs bind: 50 GB/s × 8 out of host 0"
    assert "1.5 times the bandwidth, 3.75 -> 2.5 ps/B" in found.words


def test_other_collectives_gain_no_bandwidth():
    assert not gain("dgx-h100:nvls=on", "allgather").helps


def test_where_the_bound_is_not_attained_it_says_so(tmp_path):
    """A root that alone has a wide link up sends one copy where the switch multicasts, and without
    two: 100 and about 200 ps/B, while the bound of a cut is 100 ps/B for both."""
    ends = [("0", "s", 10), ("1", "s", 0.01), ("2", "s", 0.01)]
    ends += [("s", r, 100) for r in ("0", "1", "2")]
    data = {
        "edges": [[*end, 1] for end in ends],
        "gpu_ids": ["0", "1", "2"],
        "switches": {"s": ["multicast"]},
    }
    file = tmp_path / "star.json"
    file.write_text(json.dumps(data))
    found = gain(str(file), "broadcast")
    assert not found.helps
    assert found.words.startswith("no gain in bandwidth by s, as far as is known: 100 ps/B")
    assert ", as far as" not in gain("dgx-h100:nvls=on", "broadcast").words


def test_cables_between_switches_are_neither(tmp_path):
    cables = [*((f"h{i}", f"leaf{i // 2}", 50) for i in range(4)), ("leaf0", "leaf1", 25)]
    edges = [[*ends, width, 1] for a, b, width in cables for ends in ((a, b), (b, a))]
    able = {"leaf0": ["multicast", "reduces", "turns"], "leaf1": ["multicast", "reduces"]}
    file = tmp_path / "tree.json"
    data = {"edges": edges, "gpu_ids": [f"h{i}" for i in range(4)], "switches": able}
    file.write_text(json.dumps(data))
    told = gain(str(file)).binds_with
    assert told == "the cables between switches bind: 25 GB/s out of leaf0 and 1 more"


def test_a_machine_whose_switches_forward_has_nothing_to_say():
    assert switch_gain(topology("dgx-h100"), make("allreduce", 8)) is None
