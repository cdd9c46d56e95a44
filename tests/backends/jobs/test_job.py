"""Jobs as values: one text for one question, and a fingerprint that every edit changes."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.jobs.fingerprint import fingerprint, source_of
from weft.backends.jobs.job import Job, canonical, digest, pack, unpack
from weft.dsl.base import answering
from weft.dsl.base.errors import Infeasible, Refusal, UserError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_a_job_keeps_its_argument(value: object) -> None:
    job = Job.of("math:factorial", value)
    assert job.argument() == value
    assert job == Job.of("math:factorial", json.loads(json.dumps(value)))


@given(st.dictionaries(st.text(), st.integers()))
def test_the_order_of_keys_is_no_difference(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)
    assert digest(turned) == digest(value)


def test_what_is_no_number_is_no_argument() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Job.of("math:sqrt", float("nan"))


def test_the_fingerprint_of_code_changes_with_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "outsider"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    seen = [source_of("outsider.engine")]
    for name, text in (
        ("__init__.py", "a = 1"),
        ("deep/b.py", "a = 1"),
        ("deep/c.lark", "a = 1"),
        ("deep/b.py", "a = 2"),
    ):
        (package / name).write_text(text)
        seen.append(source_of("outsider.engine"))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "b.pyc").write_text("of no interest")
    assert len(set(seen)) == 5
    assert source_of("outsider") == seen[-1]
    assert fingerprint() == fingerprint() != ""


def test_an_edit_anywhere_in_weft_is_another_weft(tmp_path: Path) -> None:
    """On a copy: as it is it has our fingerprint, and with one comment more another one."""
    copy = tmp_path / "weft"
    for name in ("dsl", "synth", "backends"):
        [place] = importlib.import_module(f"weft.{name}").__path__
        shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__init__.py").write_text("")
    ask = "from weft.backends.jobs.fingerprint import fingerprint; print(fingerprint())"

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def asked() -> str:
        found = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, check=True, env=environment
        )
        return found.stdout.strip()

    assert asked() == fingerprint()
    for name in (
        "dsl/base/units.py",
        "synth/engines/packing/trees/kernels.py",
        "dsl/language/grammar.lark",
    ):
        before = asked()
        with (copy / name).open("a") as file:
            file.write("\n")
        assert asked() != before


def test_errors_survive_the_way() -> None:
    error = Refusal("exact", "it is too large")
    again = unpack(json.loads(json.dumps(pack(error))))
    assert (type(again), again.render(), again.exit_code) == (Refusal, error.render(), 2)
    assert isinstance(again, Refusal)
    assert again.reason == error.reason
    told = unpack(pack(Infeasible("no", conflict=("a", "b"))))
    assert isinstance(told, Infeasible)
    assert told.conflict == ("a", "b")
    strange = pack(UserError("who", hint="ask"))
    strange["class"] = "os:system"
    assert unpack(strange).render() == "error: who\n\nhint: ask"


@settings(max_examples=examples(30))
@given(st.lists(st.text() | st.integers(), max_size=9), st.integers(1, 9))
def test_frames_come_together_from_any_parts(values: list[object], size: int) -> None:
    into, out = os.pipe()

    def send() -> None:
        for value in values:
            answering.write(out, value)
        os.close(out)

    sender = threading.Thread(target=send)
    sender.start()
    reader, found = answering.FrameReader(), []
    while part := os.read(into, size):
        reader.feed(part)
        while (value := reader.value()) is not None:
            found.append(value[0])
    sender.join()
    os.close(into)
    assert found == values
