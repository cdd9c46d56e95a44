"""What a library tells a runtime: the files it takes, and sizes by its own rule."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import defusedxml.ElementTree as ET
import pytest

from weft.backends.tune.artefacts import written_sizes
from weft.backends.tune.folder import environment
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import Artefact, Candidate, Library, Tuned, TunedPlan

KINDS = ("allreduce", "allgather")


def library(
    plans: int, target: str = "msccl", protocol: str = "LL", kind: str = "allreduce"
) -> Library:
    step = 1000
    made = tuple(
        TunedPlan(
            f"p{i}",
            1 + i * step,
            (i + 1) * step,
            "c",
            "classic",
            protocol,
            artefacts=(Artefact("msccl-xml", f"msccl-xml/p{i}.xml", target),),
        )
        for i in range(plans)
    )
    one = Tuned(make(kind, 2), {}, (1,), (1.0,), (1.0,), (None,), (Candidate("c", (1.0,)),), made)
    return Library("m", topology("line:2"), 1, plans * step, {}, (one,))


def sourced(files: dict[str, str], folder: Path, *names: str) -> dict[str, str]:
    """The variables after sourcing the script from elsewhere."""
    for name, text in {**files, "library.json": ""}.items():
        (folder / name).write_text(text)
    echo = "; ".join(f'echo "{n}=${n}"' for n in names)
    script = f'. "{folder / "env.sh"}"; {echo}'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd="/", check=True
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_few_files_are_named_by_their_paths(tmp_path: Path) -> None:
    found = sourced(environment(library(2)), tmp_path, "MSCCL_XML_FILES", "NCCL_ALGO", "NCCL_PROTO")
    assert found["MSCCL_XML_FILES"].split(":") == [f"{tmp_path}/msccl-xml/p{i}.xml" for i in (0, 1)]
    assert found["NCCL_ALGO"].startswith("MSCCL,")
    assert found["NCCL_PROTO"] == "Simple,LL"


@pytest.mark.skipif(shutil.which("dash") is None, reason="needs a plain POSIX shell")
def test_a_shell_that_does_not_say_where_the_script_is_gets_nothing(tmp_path: Path) -> None:
    for name, text in {**environment(library(5)), "library.json": ""}.items():
        (tmp_path / name).write_text(text)
    script = f'. "{tmp_path}/env.sh" || echo "failed $?"; echo "$NCCL_ALGO$MSCCL_CONFIG"'
    done = subprocess.run(
        ["dash", "-c", script], capture_output=True, text=True, cwd="/", check=False
    )
    assert done.stdout == "failed 1\n\n"
    assert "source it in its folder" in done.stderr
    there = subprocess.run(
        ["dash", "-c", '. ./env.sh; echo "$NCCL_ALGO"'],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert there.stdout == "MSCCL,RING,TREE\n"


def test_more_files_than_it_loads_by_name_come_in_a_list(tmp_path: Path) -> None:
    found = sourced(environment(library(5)), tmp_path, "MSCCL_CONFIG", "MSCCL_XML_FILES")
    assert found["MSCCL_XML_FILES"] == ""
    rows = ET.fromstring(Path(found["MSCCL_CONFIG"]).read_text()).findall("load")
    assert [r.get("path") for r in rows] == [f"{tmp_path}/msccl-xml/p{i}.xml" for i in range(5)]
    # microsoft/msccl takes sizes below maxbytes: each range ends where the next begins.
    ends = [(int(r.get("minbytes")), int(r.get("maxbytes"))) for r in rows]
    assert ends == [(1 + i * 1000, 1 + (i + 1) * 1000) for i in range(5)]
    assert {r.get("proto") for r in rows} == {"LL"}


def test_the_list_is_made_beside_the_library_and_again_where_it_was_moved(tmp_path: Path) -> None:
    """Nothing in a temporary folder: other hosts do not have it, and it would be left behind."""
    first = tmp_path / "a & b|c"
    first.mkdir()
    one = sourced(environment(library(5)), first, "MSCCL_CONFIG")["MSCCL_CONFIG"]
    assert Path(one).parent == first
    before = sorted(path.name for path in first.iterdir())
    assert f'"{first}/msccl-xml/p0.xml"' in Path(one).read_text()
    stamp = Path(one).stat().st_mtime_ns
    sourced({}, first, "MSCCL_CONFIG")
    assert Path(one).stat().st_mtime_ns == stamp
    assert sorted(path.name for path in first.iterdir()) == before
    moved = first.rename(tmp_path / "moved")
    again = sourced({}, moved, "MSCCL_CONFIG")["MSCCL_CONFIG"]
    assert f'"{moved}/msccl-xml/p0.xml"' in Path(again).read_text()


@pytest.mark.parametrize("target", ["rccl", "executor"])
def test_others_load_a_folder(target: str, tmp_path: Path) -> None:
    found = sourced(environment(library(6, target)), tmp_path, "MSCCL_ALGO_DIR", "MSCCL_CONFIG")
    assert found == {"MSCCL_ALGO_DIR": f"{tmp_path}/msccl-xml", "MSCCL_CONFIG": ""}


def test_only_allreduce_has_to_ask_for_leave_and_only_flags_for_their_protocol() -> None:
    text = environment(library(1, kind="allgather", protocol="Simple"))["env.sh"]
    assert "NCCL_ALGO" not in text
    assert "NCCL_PROTO" not in text


def test_a_library_without_xml_needs_none() -> None:
    bare = library(1)
    plan = replace(bare.tuned[0].plans[0], artefacts=(Artefact("mpi", "mpi/p0.py"),))
    assert environment(replace(bare, tuned=(replace(bare.tuned[0], plans=(plan,)),))) == {}


@pytest.mark.parametrize(
    ("format", "runtime", "high"),
    [
        ("msccl-xml", "msccl", 101),
        ("msccl-xml", "rccl", 100),
        ("msccl-xml", "executor", 100),
        ("mscclpp-json", "msccl", 100),
    ],
)
def test_sizes_are_written_by_the_rule_of_their_reader(
    format: str, runtime: str, high: int
) -> None:
    assert written_sizes(format, runtime, SizeRange(10, 100)) == SizeRange(10, high)


def test_no_name_is_executed(tmp_path: Path) -> None:
    evil = replace(library(1), name="m\ntouch /tmp/weft-was-here\r\nexit 3\u2028")
    found = sourced(environment(evil), tmp_path, "MSCCL_XML_FILES")
    assert found["MSCCL_XML_FILES"] == f"{tmp_path}/msccl-xml/p0.xml"
    lines = environment(evil)["env.sh"].splitlines()
    assert not any(line.startswith(("touch", "exit")) for line in lines)
