"""Boxes described in TOML: people's own files, and what is wrong with the wrong ones."""

import re
from pathlib import Path

import pytest

from weft.dsl.base.errors import BadFile
from weft.dsl.catalogue import topology
from weft.dsl.machines.host_file import host_names, load_host, read_host
from weft.dsl.nouns.topology import NodeKind

BOX = """
# Four GPUs in a ring beside a switch, two NICs.
schema = 1
name = "mine"
title = "four GPUs"
gpus = 4
symmetries = [[1, 2, 3, 0]]

[[cables]]
lane = "25.5GB/s"
alpha = "0.7us"
pairs = [[0, 1, 2], [1, 2, 2], [2, 3, 2], [3, 0, 2]]
source = "measured"

[[switch]]
name = "plx"
bandwidth = "12GB/s"
alpha = "0.3us"
source = "measured"

[nics]
attach = [[0, 1], [2, 3]]
bandwidth = "100Gb/s"
alpha = "1.3us"
pcie = "12GB/s"
fabric = "rails"
source = "data sheet"
"""


def test_a_file_of_ones_own_is_a_machine(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(BOX)
    made = topology(f"{file}:nodes=2")
    assert (made.name, made.ranks) == ("mine.toml:nodes=2", 8)
    assert {str(x.bandwidth) for x in made.links} == {"51", "12", "25/2"}
    assert {n.name for n in made.nodes if n.kind is NodeKind.SWITCH} == {
        "plx0",
        "plx1",
        "rail0",
        "rail1",
    }
    # With NICs for pairs of GPUs the ring cannot turn by one; the boxes still change places.
    assert len(made.symmetries) == 1
    assert len(topology(str(file)).symmetries) == 1


def test_a_number_of_thousands_of_digits_is_refused_in_our_words() -> None:
    with pytest.raises(BadFile, match="beyond 64 bits") as caught:
        read_host(f"schema = {'1' * 5000}", "file")
    assert "set_int_max_str_digits" not in caught.value.render()


def test_of_several_switches_the_wrong_one_is_named(tmp_path: Path) -> None:
    table = BOX[BOX.index("[[switch]]") : BOX.index("[nics]")]
    file = tmp_path / "mine.toml"
    file.write_text(BOX.replace(table, table + table.replace("12GB/s", "12").replace("plx", "b")))
    with pytest.raises(BadFile) as caught:
        topology(str(file))
    assert "mine.toml: switch 2 of 2" in caught.value.render()


@pytest.mark.parametrize("name", host_names())
def test_every_box_of_the_catalogue_is_named_as_its_file(name: str) -> None:
    box = load_host(name)
    assert box.name == name
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert 20 < len(box.title) < 90
