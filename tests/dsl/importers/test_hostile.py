"""Whatever is done to a file, reading it ends in a topology or in one clear error."""

import json
import re
from contextlib import suppress

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_files import SERVERS, xml
from shared import samples

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import parse_json
from weft.dsl.base.spans import Source
from weft.dsl.importers.recognized import read_any
from weft.dsl.importers.sketches.taccl_rules import translate
from weft.dsl.importers.taccl import read_pair
from weft.dsl.importers.taccl_sketch import read_taccl_sketch
from weft.dsl.language.lint import lint
from weft.dsl.language.parse import parse
from weft.dsl.machines.spec import parse_options
from weft.dsl.nouns.topology import Topology

XML = (
    '<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="1">'
    '<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">'
    '<gpu dev="0" sm="80" rank="0"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>'
    '</gpu></pci><pci busid="0000:02:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">'
    '<gpu dev="1" sm="80" rank="1"><nvlink target="0000:01:00.0" count="4" tclass="0x030200"/>'
    '</gpu></pci><nic><net name="n" speed="100000" dev="0"/></nic></cpu></system>'
)
SMI = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV4\tPIX\t0-7\nGPU1\tNV4\t X \tPHB\t0-7\n"
SMI += "NIC0\tPIX\tPHB\t X \n\nLegend:\n  X = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
EDGES = json.dumps({"gpu_ids": [0, 1], "edges": [[0, 1, 25, 0.7], [1, 0, "7/6", 1e-1]]})
TACCL = json.dumps(
    {
        "name": "a_1MB",
        "gpus_per_node": 2,
        "alpha": 0.3,
        "nics_per_node": 1,
        "remote_alpha": 2,
        "remote_beta": 105,
        "node_betas_list": [8],
        "node_invbws_list": [8],
    }
)
TOML = 'schema = 1\nname = "a"\ngpus = 2\n[[cables]]\nlane = "1GB/s"\nalpha = "1us"\n'
TOML += 'pairs = [[0, 1, 2]]\nsource = "me"\n'
TECCL = json.dumps(
    {
        "TopologyParams": {"name": "NDv2", "chassis": 3, "chunk_size": 1e-6, "alpha": [1e-6, 0]},
        "GurobiParams": {},
        "InstanceParams": {"collective": 1, "num_chunks": 1},
    }
)
TEXTS = {"xml": XML, "smi": SMI, "edges": EDGES, "taccl": TACCL, "toml": TOML, "teccl": TECCL}
SKETCH = json.dumps(
    {
        "nnodes": 2,
        "symmetry_offsets": [[2, 4]],
        "hyperparameters": {"input_chunkup": 1},
        "intranode_sketch": {
            "strategy": "switch",
            "switches": [[0, 1]],
            "switch_hyperedge_strategy": ["uc-min"],
        },
        "internode_sketch": {
            "strategy": "relay",
            "internode_conn": {"0": [0], "1": [1]},
            "gpus_to_sender_rev_map": {"0": [0], "1": [1]},
            "enforce_ordering": True,
        },
    }
)
JUNK = [
    "",
    "0",
    "-1",
    "1e999",
    "9" * 40,
    '"',
    "<",
    ">",
    "[",
    "]",
    "{}",
    "null",
    "\x00",
    "X",
    "NV9",
    "GPU1",
    "\t",
    "\n",
    "NaN",
    "true",
    "é",
    "/",
    "&x;",
    "=",
    ",",
]


def read(text: str, options: str = "") -> Topology:
    return read_any(text, "file", parse_options("file", Source("topology", options), 0))


@pytest.mark.parametrize("name", TEXTS)
def test_the_whole_texts_are_read(name: str) -> None:
    assert read(TEXTS[name]).ranks == (24 if name == "teccl" else 2)


@pytest.mark.parametrize("name", TEXTS)
def test_a_truncated_text_is_an_error_or_a_smaller_machine(name: str) -> None:
    text = TEXTS[name]
    for end in range(len(text)):
        try:
            made = read(text[:end])
        except UserError:
            continue
        assert name in ("smi", "toml")
        assert made.ranks <= 2


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=examples(20, 150))
@given(data=st.data())
def test_a_mutated_text_never_crashes(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.sampled_from(JUNK)) + text[end:]
    options = data.draw(st.sampled_from(["", "nodes=2", "nodes=2,fabric=rails"]))
    with suppress(UserError):
        read(text, options)


@settings(max_examples=examples(100, 200))
@given(data=st.data())
def test_a_mutated_sketch_is_refused_or_still_one(data: st.DataObject) -> None:
    text = SKETCH
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 3)))
        text = text[:start] + data.draw(st.sampled_from(JUNK)) + text[end:]
    with suppress(UserError):
        idea = read_taccl_sketch(parse_json(text, "s"), "s", "s")
        options = parse_options("t", Source("topology", ""), 0)
        there = read_pair(TACCL, "t", options, idea)
        tree = parse(translate(idea, there).text)
        assert lint(tree, there) == ()


ATTRIBUTE = re.compile(r'(link_speed|link_width|speed|count|sm|gcn|rank|busid|target)="[^"]*"')


DUMPS = [xml(server) for server in SERVERS.values()]
DUMPS += [file.read_text() for file in samples("nccl-topo")]


@settings(max_examples=examples(30, 60))
@given(st.sampled_from(DUMPS), st.data())
def test_samples_with_wrong_attributes_never_crash(text: str, data: st.DataObject) -> None:
    start, end = data.draw(st.sampled_from([m.span() for m in ATTRIBUTE.finditer(text)]))
    name = text[start:end].partition("=")[0]
    value = data.draw(st.sampled_from(["", "0", "-1", "x", "1e9", "99999999999", "2.5 GT/s"]))
    with suppress(UserError):
        read(f'{text[:start]}{name}="{value}"{text[end:]}', "nodes=2")
