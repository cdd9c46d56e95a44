"""Graphviz text and SVG: well formed whatever the names are, always the same, with all there is."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules, topologies
from timed_programs import ring_allgather

from weft.backends.report.svg import (
    drawing,
    joined,
    machine_dot,
    machine_piece,
    program_chart,
    quoted,
    schedule_chart,
    shade,
    share_words,
)
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Topology
from weft.synth.time.program_record import record_program
from weft.synth.time.runtime_model import MSCCL
from weft.synth.time.schedule_time import simulate
from weft.synth.time.timeline import timeline

SVG = "{http://www.w3.org/2000/svg}"
NASTY = 'a"b\\n<&>]]>\n{}'
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w]*|->|[-\d.]+|[{}\[\];,=]|(\S)')


def named(t: Topology, name: str) -> Topology:
    """Everything in it is called alike."""
    nodes = tuple(replace(node, name=f"{name}{i}") for i, node in enumerate(t.nodes))
    shared = tuple(replace(r, name=f"{name}{i}") for i, r in enumerate(t.resources))
    return replace(t, name=name, nodes=nodes, resources=shared)


def is_dot(text: str) -> None:
    """Tokens of the language only, and brackets that match."""
    odd = [m[1] for m in TOKEN.finditer(text) if m[1]]
    assert odd == []
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    for a, b in ("{}", "[]"):
        assert bare.count(a) == bare.count(b)


@settings(max_examples=examples(20, 40), deadline=None)
@given(topologies(), st.sampled_from(["gpu", NASTY]))
def test_any_machine_has_its_drawings(t: Topology, name: str) -> None:
    t = named(t, name)
    for use in (None, np.linspace(0, 1, len(t.links) + len(t.resources))):
        text = machine_dot(t, use)
        is_dot(text)
        assert text == machine_dot(t, use)
        assert len(re.findall(r"^ *n\d+ \[", text, re.MULTILINE)) == len(t.nodes)
        assert len(re.findall(r"^ *r\d+ \[", text, re.MULTILINE)) == len(t.resources)
        if use is not None:
            assert len(re.findall(r"n\d+ -> n\d+", text)) == len(t.links)
        drawn = drawing(t.name, [machine_piece(t, use)])
        root = ElementTree.fromstring(drawn)
        kinds = len(root.findall(f".//{SVG}circle")) + len(root.findall(f".//{SVG}rect"))
        assert kinds >= len(t.nodes)
        pairs = {(x.src, x.dst) for x in t.links}
        assert len(root.findall(f".//{SVG}path")) == len(pairs)
        assert drawn == drawing(t.name, [machine_piece(t, use)])


@settings(max_examples=examples(30), deadline=None)
@given(planned_schedules(), st.sampled_from([1000, 1 << 20]))
def test_every_hold_is_a_bar_of_the_chart(s, size) -> None:
    run = timeline(s, size)
    chart = schedule_chart(run)
    root = ElementTree.fromstring(drawing("x", [chart]))
    bars = root.findall(f".//{SVG}g/{SVG}rect")
    assert len(bars) == len(run.held_row)
    for bar in bars:
        assert 0 <= float(bar.get("x")) <= chart.width
        assert float(bar.get("x")) + float(bar.get("width")) <= chart.width
    names = {e.text for e in root.findall(f".//{SVG}g/{SVG}text")}
    busy = simulate(s, size).busy_us
    for row, resource in enumerate(s.topology.resources, len(s.topology.links)):
        assert (resource.name in names) == bool(busy[row])


def test_blocks_of_a_program_are_rows() -> None:
    run = record_program(ring_allgather(4), topology("ring:4"), 1 << 20, MSCCL)
    root = ElementTree.fromstring(drawing("x", [program_chart(run)]))
    names = {e.text for e in root.findall(f".//{SVG}g/{SVG}text")}
    assert {f"rank {r} block 0" for r in range(4)} <= names
    assert len(root.findall(f".//{SVG}g/{SVG}rect")) == len(run.phase)


def test_what_touches_is_joined_where_there_is_too_much() -> None:
    bars = [(0.0, 1.0, "red", "a"), (1.0, 2.0, "red", "b"), (50.0, 51.0, "red", "c")]
    assert [b[:2] for b in joined(bars, 100.0)] == [(0, 2), (50, 51)]


@pytest.mark.parametrize("text", ["plain", NASTY, "\\", '"', ""])
def test_names_are_quoted(text) -> None:
    is_dot(f"digraph {quoted(text)} {{ }}")


def test_the_scale_darkens() -> None:
    tones = [int(shade(x / 10)[1:3], 16) for x in range(11)]
    assert tones == sorted(tones, reverse=True)
    assert (shade(-1), shade(2)) == (shade(0), shade(1))
    assert [share_words(x) for x in (0.0, 0.004, 0.87, 0.999, 1.0)] == [
        "0%",
        "0.4%",
        "87%",
        "99.9%",
        "100%",
    ]
