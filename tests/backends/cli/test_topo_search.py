"""``weft topo search``: its JSON, and questions that it cannot answer."""

import json

from weft.backends.cli.flags.nested import SHAPE_KINDS
from weft.backends.cli.flags.shared import RELAYS
from weft.dsl.nouns.workload import Forwarders
from weft.synth.joint.shapes import SHAPES


def test_the_answer_names_machines_of_the_catalogue(weft) -> None:
    out = weft("topo", "search", "--ranks", "8", "--degree", "3", "--top", "1", "--json")
    told = json.loads(out.out)
    assert out.code == 0
    assert told["shapes"][0]["over_best"] == 1
    assert told["looked_at"] > 1
    name = told["shapes"][0]["topology"]
    assert weft("topo", "show", name).code == 0


def test_the_flags_name_all_that_the_search_and_the_workloads_know() -> None:
    assert SHAPE_KINDS == SHAPES
    assert tuple(map(str, Forwarders)) == RELAYS
