"""Readers of pasted text take time in proportion to its length, whatever word it repeats."""

import time

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.importers.nccl_log import read_log
from weft.dsl.importers.recognized import read_any
from weft.dsl.importers.workloads.read import workload_in
from weft.dsl.machines.fabric_file import read_fabric
from weft.dsl.machines.spec import parse_spec

LONG = 200_000
LIMIT = 10.0
"""CPU seconds for one text by all readers; those that are linear take a tenth of a second."""


@pytest.mark.parametrize("unit", ["a", "1", " ", "\n", "a ", "\t", "=", "0.", "#\n", "|", "-", "["])
@pytest.mark.parametrize("head", ["", "#\n", "graph\n", "GPU ", "\tGPU0\t", "# size", "host1:1:1 "])
def test_a_long_word_is_read_or_refused_at_once(head: str, unit: str) -> None:
    text = head + unit * (LONG // len(unit)) + "!"
    begun = time.process_time()
    for read in (
        lambda: read_any(text, "file", parse_spec("file")),
        lambda: workload_in(text, "file"),
        lambda: read_fabric(text, "file"),
        lambda: read_log(text),
    ):
        try:
            read()
        except UserError:
            pass
    assert time.process_time() - begun < LIMIT
