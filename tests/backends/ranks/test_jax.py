"""Files for JAX on devices of the host, by XLA itself: results, gradients, meshes, refusals."""

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from jobs import algorithm, all_right, outcomes
from random_moves import random_algorithm

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.format import JaxFile
from weft.backends.ranks import launcher
from weft.backends.ranks.job import Case, EmittedFile, whole_job
from weft.backends.ranks.launcher import require_whole, run_job

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")

SEEDS = (2, 13)
"""Random programs; the second sums what is in no result."""

CHECKS = Path(__file__).parents[2] / "support" / "jax_checks.py"


def file(noun, *, in_place=False, segments=1):
    return JaxFile().write(compile_script(noun, in_place=in_place, segments=segments))


def ring(kind, ranks):
    return algorithm(f"ring{{collective={kind},ranks={ranks}}}")


def test_results_are_right_in_every_type_in_and_out_of_place():
    pieces = [
        EmittedFile.of(file(noun))
        for noun in (
            ring("allreduce", 3),
            ring("broadcast", 3),
            algorithm("one_shot{ranks=4}"),
            algorithm("bruck{collective=allgather,ranks=5}"),
            *(
                random_algorithm(seed, ranks=3, chunks=3, moves=18, in_place=bool(seed % 2))
                for seed in SEEDS
            ),
        )
    ]
    cases = [
        Case(0, 7, "float32", in_place=True, repeat=1),
        Case(0, 7, "float32", rough=True),
        Case(0, 4, "bfloat16"),
        Case(0, 0, "int32"),
        *(Case(number, 5, "int32") for number in range(1, len(pieces))),
    ]
    job = whole_job(pieces, cases, 120.0)
    ending = run_job(job, "jax")
    require_whole(job, ending)
    found = outcomes(job, ending.reports)
    all_right(found)
    assert len(found) == len(cases)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jax")
    names = []
    for kind, ranks in (
        ("allgather", 4),
        ("reduce_scatter", 4),
        ("allreduce", 4),
        ("allreduce", 2),
    ):
        names.append(folder / f"{kind}_{ranks}.py")
        names[-1].write_text(file(ring(kind, ranks)))
    command = launcher.on_devices((str(CHECKS), *map(str, names)), 4)
    ran = launched(command)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def launched(command):
    environment = {**os.environ, **command.environment}
    return subprocess.run(command.words, env=environment, capture_output=True, text=True)


def test_the_transpose_of_allgather_is_reduce_scatter_and_the_other_way_round(facts):
    assert facts["gather_pulls_back_as_reduce_scatter"] < 1e-5
    assert facts["scatter_pulls_back_as_allgather"] == 0


def test_meshes_of_two_axes(facts):
    assert facts["two_axes"] < 1e-5
    assert facts["one_of_two_axes"] < 1e-5
    assert facts["maximum"] == 0


def test_a_donated_array_is_used_up(facts):
    assert facts["donated"] is True


def test_what_does_not_fit_is_refused_when_the_function_is_traced(facts):
    assert facts["other_axis"] == "the program is for 4 ranks; mesh axis 'x' has 2"
    assert facts["no_operator"] == "bool has no sum"
    assert facts["no_order"] == "complex64 has no max"
    assert facts["unknown_operator"] == "op is 'xor'; there are sum, prod, max, min"
    assert facts["no_multiple"] == "axis 0 of x must be a multiple of 4; its shape is (5,)"


def test_too_few_devices_are_named():
    code = "from weft.backends.ranks.jax import Devices; Devices(3)"
    command = launcher.on_devices(("-c", code), 2)
    ran = launched(command)
    assert "the program is for 3 ranks; JAX has 2 devices (cpu)" in ran.stderr
