"""``weft deploy``: settings with absolute paths, launchers, the runtime by the machine's GPUs."""

import ast
import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.deploy.guide import guide, guide_text, is_temporary
from weft.backends.deploy.launchers import LAUNCHERS, assigned
from weft.backends.deploy.settings import machine_loader, machine_target
from weft.backends.report.back_ends import advice
from weft.backends.tune.folder import environment
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import Artefact, Candidate, Library, Tuned, TunedPlan, dumps
from weft.dsl.nouns.runtime import LOADERS, TARGETS, default_loader
from weft.synth.bounds import bounds
from weft.synth.time.calibrated import families

PLACE = "/shared/weft lib"


def library(
    machine: str = "line:2", *, format: str = "msccl-xml", target: str = "", files: int = 1
):
    t = topology(machine)
    target = target or (machine_target(t) if format == "msccl-xml" else "")
    plans = tuple(
        TunedPlan(
            f"p{i}",
            1024 * 4**i,
            1024 * 4 ** (i + 1) - 1,
            "c",
            "classic",
            "LL",
            artefacts=(Artefact(format, f"{format}/p{i}.x", target),),
        )
        for i in range(files)
    )
    tuned = Tuned(
        make("allreduce", t.ranks),
        {},
        (1024,),
        (1.0,),
        (1.0,),
        (None,),
        (Candidate("c", (1.0,)),),
        plans,
    )
    return Library(t.name, t, 1024, plans[-1].high, {}, (tuned,))


TRAY = """\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tPIX\tSYS\tSYS\t0-23\t0
GPU1\tNV12\t X \tSYS\tSYS\tPIX\t24-47\t1
NIC0\tPIX\tSYS\t X \tSYS\tSYS
NIC1\tSYS\tSYS\tSYS\t X \tSYS
NIC2\tSYS\tPIX\tSYS\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: mlx5_2
"""
"""Two GPUs, each with a NIC; the third one is nobody's."""


def test_the_nics_of_the_plans_are_named_for_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TRAY)
    found = guide(library(f"{tmp_path}/topo.txt:nodes=2"), "/shared/weft")
    assert dict(found.variables)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_2"
    assert "-x NCCL_IB_HCA='=mlx5_0,mlx5_2'" in found.launch["mpirun"]
    (note,) = (note for note in found.notes if "NCCL_IB_HCA" in note)
    assert "would take storage's too; the = before their names" in note
    (tmp_path / "odd.txt").write_text(TRAY.replace("mlx5_0", "mlx5$(c)"))
    for machine in (f"{tmp_path}/topo.txt", "dgx-a100:nodes=2", f"{tmp_path}/odd.txt:nodes=2"):
        found = guide(library(machine), "/x")
        assert not any("NCCL_IB_HCA" in text for text in (*found.notes, *dict(found.variables)))


@pytest.fixture
def folder(tmp_path: Path):
    def made(one: Library) -> Path:
        (tuned,) = one.tuned
        bound = bounds(one.topology, tuned.collective).to_json()
        whole = replace(one, timing={"by": "simulation"}, tuned=(replace(tuned, bound=bound),))
        (tmp_path / "library.json").write_text(dumps(whole))
        return tmp_path

    return made


@pytest.mark.parametrize(
    ("machine", "loader", "target"),
    [
        ("dgx1", "executor", "executor"),
        ("dgx-a100:nodes=2", "executor", "executor"),
        ("dgx-h100", "executor", "executor"),
        ("gb200-nvl72", "mscclpp", "executor"),
        ("mi300x", "rccl", "rccl"),
        ("mi250:nodes=2", "rccl", "rccl"),
        ("line:2,family=l4", "executor", "executor"),
        ("line:2,family=rtx", "executor", "executor"),
        (TRAY, "executor", "executor"),
        ("ring:4", "executor", "executor"),
    ],
)
def test_files_are_for_the_runtime_that_doctor_calls_best(
    machine: str, loader: str, target: str, tmp_path: Path
) -> None:
    if machine is TRAY:
        (tmp_path / "topo.txt").write_text(machine)
        machine = f"{tmp_path}/topo.txt"
    t = topology(machine)
    assert machine_loader(t).name == loader
    assert machine_target(t) == target
    best = advice(t)[0].back_end
    assert machine == "ring:4" or best.runtime == machine_loader(t).title


def test_a_text_of_nvidia_smi_is_never_offered_rccl(tmp_path: Path) -> None:
    for number, text in enumerate((TRAY, TRAY.replace("NV12", "SYS"))):
        (tmp_path / f"{number}.txt").write_text(text)
        found = guide(library(f"{tmp_path}/{number}.txt"), PLACE)
        (row,) = [one for one in found.runtimes if one.loader.name == "rccl"]
        assert (row.built, row.words) == (False, "no: for AMD's GPUs")
    (row,) = [one for one in guide(library("z52"), PLACE).runtimes if one.loader.name == "executor"]
    assert row.words == "no: for NVIDIA's GPUs"


def test_every_family_has_a_runtime_that_exists_and_every_runtime_only_known_families() -> None:
    assert {default_loader(one, None, xml=True).name for one in families()} <= set(TARGETS)
    for one in LOADERS.values():
        assert set(one.families) <= set(families()), one.name
        assert one.name in TARGETS or one.format != "msccl-xml"


def test_on_h100_the_old_fork_is_not_taken_and_it_is_said_why(weft, folder) -> None:
    told = json.loads(weft("deploy", folder(library("dgx-h100")), "--json").ended(0).out)
    assert told["runtime"] == "executor"
    rows = {row["name"]: row for row in told["runtimes"]}
    assert rows["msccl"]["built"] is False
    assert "2.12" in rows["msccl"]["why"]
    assert "--to mscclpp-json" in rows["mscclpp"]["why"]


def test_files_for_another_generation_are_deployed_with_a_warning() -> None:
    found = guide(library("dgx-h100", target="msccl"), PLACE)
    assert found.settings is not None
    assert found.settings.loader.name == "msccl"
    assert any("not known to run" in note and "2.12" in note for note in found.notes)
    (row,) = [one for one in found.runtimes if one.chosen]
    assert row.words.startswith("these settings are for it, but: a fork of NCCL 2.12")


def test_runtimes_of_another_maker_are_not_refused_for_their_age() -> None:
    """On AMD's GPUs it does not matter which of NVIDIA's a runtime has kernels for."""
    rows = {one.loader.name: one.words for one in guide(library("mi300x"), PLACE).runtimes}
    assert rows["executor"] == rows["msccl"] == "no: for NVIDIA's GPUs"
    assert rows["rccl"] == "these settings are for it"


def test_all_paths_are_absolute_and_below_the_place_that_hosts_see() -> None:
    for target, files in (("msccl", 2), ("msccl", 6), ("rccl", 6), ("executor", 6)):
        found = guide(library("line:2", target=target, files=files), PLACE)
        for name, value in found.variables:
            for path in value.split(":") if "/" in value and name != "LD_PRELOAD" else ():
                assert path.startswith(f"{PLACE}/"), (name, value)
        assert not any("/tmp" in text for text in found.launch.values())


@pytest.mark.parametrize("launcher", ["mpirun", "slurm", "torchrun"])
def test_a_shell_hands_on_what_is_meant(launcher: str, tmp_path: Path) -> None:
    """Paths with blanks and values with commas arrive: each line is run with a stand-in."""
    target = "msccl" if launcher == "mpirun" else "executor"
    found = guide(library("dgx-a100:nodes=2", target=target, files=2), PLACE, preload="/opt/x y.so")
    name = {"slurm": "srun"}.get(launcher, launcher)
    stand_in = tmp_path / name
    if launcher == "mpirun":
        stand_in.write_text('#!/bin/bash\nfor a in "$@"; do echo "$a"; done\n')
    else:
        stand_in.write_text("#!/bin/bash\nunset LD_PRELOAD_SEEN\nenv\n")
    stand_in.chmod(0o755)
    # A loader complains about a missing LD_PRELOAD on stderr, and goes on.
    text = found.launch[launcher].replace("LD_PRELOAD", "PRELOADED")
    done = subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HEAD": "h"},
        check=True,
    )
    lines = done.stdout.splitlines()
    for key, value in found.variables:
        assert f"{key.replace('LD_PRELOAD', 'PRELOADED')}={value}" in lines
    if launcher == "mpirun":
        asked = "-np 16 --hostfile hosts --map-by ppr:8:node --bind-to none"
        assert lines[:8] == asked.split()
        assert found.files["hosts"] == "HOST0 slots=8\nHOST1 slots=8\n"
    elif launcher == "slurm":
        assert found.launch["slurm"].count("--cpus-per-task=4") == 2


def test_a_job_of_kubernetes_is_yaml_with_the_same_variables() -> None:
    found = guide(library("mi300x:nodes=2"), "/shared/weft")
    text = found.launch["kubernetes"]
    (command,) = [line for line in text.splitlines() if line.strip().startswith("command:")]
    words = json.loads(command.partition(":")[2])
    for key, value in found.variables:
        assert f"{key}={value}" in words
    assert words[:3] == ["mpirun", "--allow-run-as-root", "-np"]
    assert "limits: {amd.com/gpu: 8, rdma/rdma_shared_device_a: 1}" in text
    assert "securityContext: {capabilities: {add: [IPC_LOCK]}}" in text
    assert "{name: shm, mountPath: /dev/shm}" in text
    assert "emptyDir: {medium: Memory, sizeLimit: 16Gi}" in text
    assert "rdma" not in guide(library("mi300x"), "/shared/weft").launch["kubernetes"]
    assert text.count('mountPath: "/shared/weft"') == 2
    depths = [len(line) - len(line.lstrip()) for line in text.splitlines()]
    assert all(depth % 2 == 0 for depth in depths)


def test_the_line_that_verifies_hands_on_the_folder() -> None:
    """A path with a command in it stays one word of the shell's."""
    folder = "/shared/it's $(exit 3); weft"
    found = guide(library(target="msccl"), folder)
    words = shlex.split(found.tests["verify"].replace("\\\n", ""))
    assert words[words.index("--library") + 1] == folder


def test_tests_before_and_after_name_the_sizes_of_the_library() -> None:
    one = library("dgx-a100:nodes=2", target="msccl", files=3)
    found = guide(one, "/shared/weft")
    before, after = found.tests["all_reduce before"], found.tests["all_reduce after"]
    assert "MSCCL" not in before
    assert f"-b 1024 -e {one.high} " in before
    assert all(f"-x {shlex.quote(f'{k}={v}')}" in after for k, v in found.variables)
    assert "NCCL_DEBUG=INFO" in found.tests["all_reduce proof"]
    assert "NCCL_DEBUG" not in after  # a line for each call would be timed


def test_plans_of_mscclpp_are_registered_by_a_file(weft, folder, tmp_path: Path) -> None:
    out = weft(
        "deploy",
        folder(library("dgx-h100", format="mscclpp-json", files=2)),
        *("--at", "/shared/weft", "-o", tmp_path / "out"),
    ).ended(0)
    text = (tmp_path / "out" / "mscclpp_plans.py").read_text()
    compile(text, "mscclpp_plans.py", "exec")
    assert "RANKS, RANKS_PER_NODE = 8, 8" in text
    assert "'mscclpp-json/p1.x'" in text
    assert "weft: registered" in out.out
    assert "MSCCLPP_NCCL_LIB_PATH=/path/to/libnccl.so.2" in out.out
    assert "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=all" in out.out
    amd = guide(library("mi300x", format="mscclpp-json"), "/shared/weft")
    assert dict(amd.variables)["MSCCLPP_NCCL_LIB_PATH"] == "/path/to/librccl.so.1"


def test_torchrun_is_not_proposed_for_an_nccl_that_torch_does_not_load(
    weft, folder, tmp_path: Path
) -> None:
    old = folder(library("dgx-a100", target="msccl"))
    out = weft("deploy", old, "--at", "/shared/weft", "-o", tmp_path / "out", "--json").ended(0)
    assert set(out.json["launch"]) == {"mpirun", "slurm", "kubernetes"}
    assert not (tmp_path / "out" / "run-torchrun.sh").exists()
    weft("deploy", old, "--for", "torchrun").ended(
        2, "no wheel of torch since 2.0 loads it: they need NCCL 2.14"
    )
    new = guide(library("dgx-a100", target="executor"), PLACE)
    assert any("from 2.8 on they need functions of NCCL 2.27" in note for note in new.notes)


ODD = "ab/ '\"`$()\\;&|\n\r\t\x1b\x07#!*~=:,é"
HOSTILE = st.text(st.sampled_from(ODD), min_size=1, max_size=20)
PLACES = st.text(st.sampled_from([c for c in ODD if c.isprintable()]), min_size=1, max_size=20)


@settings(deadline=None, max_examples=examples(40))
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, PLACES, st.sampled_from(["msccl", "rccl", "mscclpp"]))
def test_texts_of_files_stay_words_in_scripts(
    file: str, machine: str, collective: str, host: str, place: str, runtime: str
) -> None:
    """Whatever a name has in it: scripts are well formed, and hand it on as it is."""
    xml = runtime != "mscclpp"
    asked = {"target": runtime} if xml else {"format": "mscclpp-json"}
    one = library("dgx-a100:nodes=2", **asked)
    (tuned,) = one.tuned
    plan = replace(tuned.plans[0], artefacts=(replace(tuned.plans[0].artefacts[0], file=file),))
    named = replace(tuned.collective, name=collective.strip() or "c")
    t = replace(one.topology, name=machine, host_names=(host, f"{host}2"))
    one = replace(
        one, name=machine, topology=t, tuned=(replace(tuned, collective=named, plans=(plan,)),)
    )
    found = guide(one, f"/{place}", preload=f"/{place}")
    assert re.fullmatch(r"([\w.-]+ slots=8\n){2}", found.files["hosts"])
    shells = [found.launch[x] for x in ("mpirun", "slurm", "torchrun") if x in found.launch]
    printed = guide_text(found)
    assert printed.replace("\n", "").isprintable()
    for text in (*shells, *found.tests.values(), *environment(one).values()):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for name, value in found.variables:
        line = f'{assigned(name, value)}; printf %s "${name}"'
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        assert done.stdout == value
    words = found.launch["kubernetes"].partition("command: ")[2].splitlines()[0]
    assert {f"{name}={value}" for name, value in found.variables} <= {*json.loads(words)}


@pytest.mark.parametrize("name", ['p".x', 'p",\n__import__("os").abort(),\n"', "p\\"])
def test_names_of_plans_stay_texts_in_the_file_that_registers_them(name: str) -> None:
    one = library("dgx-h100", format="mscclpp-json")
    (tuned,) = one.tuned
    plan = replace(tuned.plans[0], artefacts=(Artefact("mscclpp-json", name, ""),))
    hostile = replace(one, tuned=(replace(tuned, plans=(plan,)),))
    tree = ast.parse(guide(hostile, "/shared/weft").files["mscclpp_plans.py"])
    (listed,) = [node.value for node in tree.body if ast.unparse(node).startswith("PLANS = ")]
    assert ast.literal_eval(listed) == [name]


def test_files_are_written_once_and_replaced_with_f(weft, folder, tmp_path: Path) -> None:
    asked = ("deploy", folder(library()), "--at", "/shared/weft", "-o", tmp_path / "out")
    assert weft(*asked).code == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        *("guide.txt", "mpijob.yaml", "run-mpirun.sh", "run-slurm.sbatch", "run-torchrun.sh"),
        "weft.env",
    ]
    for name in names:
        script = name.startswith("run-")
        assert os.access(tmp_path / "out" / name, os.X_OK) == script
        if script:
            assert (tmp_path / "out" / name).read_text().startswith("#!/bin/bash\n")
            subprocess.run(["bash", "-n", tmp_path / "out" / name], check=True)
    assert weft(*asked).code == 2
    assert weft(*asked, "-f").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--runtime", "rccl"), "not for rccl"),
        (("--at", "shared"), "expected an absolute path"),
        (("--preload", "lib/libnccl.so.2"), "expected an absolute path"),
        (("--preload", "/lib/x\n.so"), "expected an absolute path on one line"),
        (("--at", "/shared:weft"), "at colons"),
        (("--at", "/shared\nweft"), "expected an absolute path on one line"),
        (("-o", "-"), "a folder"),
    ],
)
def test_what_cannot_be_deployed(weft, folder, arguments, told) -> None:
    weft("deploy", folder(library()), *arguments).ended(2, told)


def test_a_library_of_programs_alone_has_no_settings() -> None:
    found = guide(library(format="mpi"), PLACE)
    assert found.settings is None
    assert any("docs/running.md" in note for note in found.notes)


def test_folders_of_one_host_are_told(tmp_path: Path) -> None:
    assert is_temporary(str(tmp_path))
    assert not is_temporary("/shared/tmp")
    assert any("temporary" in note for note in guide(library(), "/tmp/x").notes)


def test_the_page_is_the_same_wherever_the_library_lies() -> None:
    from weft.backends.report.html.library_page import deploy_section

    section = deploy_section(replace(library("dgx-h100"), files={}))
    told = json.dumps(section)
    assert 'MSCCL_ALGO_DIR=\\"$WEFT_LIBRARY\\"/msccl-xml' in told
    assert '--library \\"$WEFT_LIBRARY\\" -o measured.json' in told
    assert "2.12" in told
    assert set(LAUNCHERS) == {"mpirun", "slurm", "torchrun", "kubernetes"}
