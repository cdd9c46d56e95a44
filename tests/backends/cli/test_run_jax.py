"""``weft`` on programs for JAX: every verb takes them, and refuses them in one message."""

import json
from importlib.util import find_spec

import pytest
from casts import two_shot

from weft.backends.ranks import launcher
from weft.dsl.nouns.schedule import dump

RING = "classic:ring{collective=allreduce,ranks=2}"

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")


@needs_jax
def test_too_few_devices_are_a_lack_of_this_machine(weft, monkeypatch, tmp_path):
    path = tmp_path / "ring.py"
    assert weft("compile", RING, "--to", "jax", "-o", path).code == 0
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    for words in (
        ("run", path, "--on", "jax", "--size", "1KiB", "--dtype", "int32"),
        ("bench", RING, "--on", "jax", "--sizes", "1KiB:1KiB"),
    ):
        weft(*words).ended(4, "JAX finds no device with JAX_PLATFORMS=cuda", "unset JAX_PLATFORMS")


def test_the_file_of_another_runtime_is_refused(weft, tmp_path):
    path = tmp_path / "ring.py"
    assert weft("compile", RING, "--to", "jax", "-o", path).code == 0
    weft("run", path, "--on", "mpi").ended(2, "the file is for jax", "--on jax")
    assert weft("run", path, "--size", "1KiB", "--repeat", 1).code == 0  # NumPy takes any


@pytest.mark.parametrize("runtime", ["jax", "torch"])
def test_without_a_runtime_its_extra_is_named(weft, monkeypatch, runtime):
    monkeypatch.setattr(launcher, "find_spec", lambda name: None)
    for verb in ("run", "bench"):
        weft(verb, RING, "--on", runtime).ended(4, f"weft[{runtime}]")


@needs_jax
def test_a_bench_compares_with_xla(weft):
    name = "classic:ring{collective=reduce_scatter,ranks=2}"
    ran = weft("bench", name, "--on", "jax", "--sizes", "1KiB:1KiB", "--repeat", 2, "--json").ended(
        0
    )
    assert [one["name"] for one in ran.json["sizes"]] == [name.removeprefix("classic:"), "XLA"]
    assert all(one["wrong"] is None and one["turns"] == 2 for one in ran.json["sizes"])


def test_every_verb_takes_the_file(weft, tmp_path):
    path, other = tmp_path / "ring.py", tmp_path / "mpi.py"
    made = weft("compile", RING, "--to", "jax", "-o", path, "--json")
    assert made.json["to"] == "jax"
    assert made.json["permutations"] == 2
    assert made.json["padding"] == 0
    assert weft("compile", RING, "--to", "mpi", "-o", other).code == 0
    assert weft("check", path).code == 0
    assert weft("show", path).out == weft("show", other).out
    assert weft("diff", path, other).code == 0
    assert "not simulated" in weft("simulate", path, "-t", "ring:2").err
    assert "-t ring" not in weft("run", path, "--size", "1KiB", "--repeat", 1).err


def test_a_torus_is_seen_in_the_schedule(weft, tmp_path):
    schedule, path = tmp_path / "torus.json", tmp_path / "torus.py"
    question = ("-t", "torus:3x3", "-c", "allgather", "-e", "packing", "--objective", "bandwidth")
    assert weft("synth", *question, "-o", schedule).code == 0
    assert weft("compile", schedule, "--to", "jax", "-o", path).code == 0
    text = path.read_text()
    assert '"grid": (3, 3)' in text
    assert "shift along one axis" in text
    assert weft("check", path).code == 0


def test_flags_that_say_nothing(weft, tmp_path):
    path = tmp_path / "ring.py"
    ran = weft("compile", RING, "--to", "jax", "--instances", 2, "-o", path)
    assert (ran.code, "--instances says nothing" in ran.err, path.exists()) == (2, True, False)
    weft("run", RING, "--on", "jax", "--trace", tmp_path / "trace.json").ended(
        2, "--on jax cannot record rounds"
    )


def test_schedules_of_switches_that_compute_are_refused(weft, tmp_path):
    schedule, path = tmp_path / "casts.json", tmp_path / "casts.py"
    schedule.write_text(json.dumps(dump(two_shot(4))))
    ran = weft("compile", schedule, "--to", "jax", "-o", path)
    assert (ran.code, "jax cannot express what switches" in ran.err, path.exists()) == (
        2,
        True,
        False,
    ), ran.err


def test_doctor_names_the_back_end_of_a_machine(weft):
    ran = weft("doctor", "--machine", "torus:4x4", "--framework", "jax", "--json")
    assert [(one["format"], one["fits"]) for one in ran.json["back_ends"]] == [("jax", True)]
    assert "4×4 grid" in ran.json["back_ends"][0]["why"]
    assert weft("doctor", "--machine", "torus:4x4").out.split("\n")[1].startswith("best  jax")
    for flags in (("--framework", "jax"), ("--machine", "nonsense"), ("--framework", "tf")):
        ran = weft("doctor", *flags).ended(2)
        assert "hint" in ran.err or "choose from" in ran.err
