"""Triton compiles the kernels for GPUs that are not here; their fences are in the code."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
import symm_files

from weft.dsl.nouns.program import Protocol

COMPILE = """
import importlib.util, json, sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

def assembly(path, backend, arch, warp):
    spec = importlib.util.spec_from_file_location("program", path)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    target = GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(warp))
    names = m.run.arg_names
    given = {"BLOCKS": m.BLOCKS, "WORD": tl.int32, "TYPE": tl.bfloat16, "OP": "sum",
             "TILE": m.TILE, "PTX": backend == "cuda"}
    if "CODE" in names:
        code, _ = m.assembled()
        code = tuple(map(tuple, code[0] + [[]] * (m.BLOCKS - len(code[0]))))
        given |= {"RANK": 0, "CODE": code, "LENGTHS": tuple(map(len, code))}
    types = {"code": "*i32", "begins": "*i32", "rank": "i32"}
    types |= {"bases": "*i64", "length": "i32", "half": "i64"}
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n in ("bases", "length", "half")}
    known = {(names.index(n),): v for n, v in given.items()}
    source = ASTSource(m.run, signature, known, aligned)
    made = triton.compile(source, target=target, options={"num_warps": m.WARPS}).asm
    return made["ptx"] if backend == "cuda" else made["amdgcn"]

asked = json.loads(sys.argv[1])
print(json.dumps([assembly(*one) for one in asked]))
"""

TARGETS = (
    ("one shot", Protocol.LL, False, "cuda", "90", "32"),
    ("ring", Protocol.SIMPLE, True, "cuda", "80", "32"),
    ("ring", Protocol.SIMPLE, False, "hip", "gfx942", "64"),
)
"""Programs, whether specialised, and what for."""


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The assembly of the files' kernels, made in one process that does not interpret."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    folder, asked = tmp_path_factory.mktemp("kernels"), []
    for number, (name, protocol, specialised, *target) in enumerate(TARGETS):
        path = folder / f"program_{number}.py"
        path.write_text(symm_files.file(name, protocol, specialised=specialised))
        asked.append([str(path), *target])
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    made: list[str] = json.loads(done.stdout)
    return made


def test_a_kernel_of_packets_for_hopper(assembly: list[str]) -> None:
    ptx = assembly[0]
    assert "st.release.sys.global.b32" in ptx  # a signal
    assert "ld.global.sys.acquire" in ptx or "atom.global.sys.acquire" in ptx  # a wait
    assert "st.relaxed.sys.global.b64" in ptx  # a packet
    assert "ld.volatile.global.v2.b64" in ptx  # packets, 16 bytes at a time
    assert "ld.global.v4.b32" in ptx  # data, 16 bytes at a time


def test_a_kernel_of_constants_for_ampere(assembly: list[str]) -> None:
    ptx, text = assembly[1], symm_files.file("ring", Protocol.SIMPLE, specialised=True)
    signals = sum(op[0] == 2 for op in symm_files.assembled(text)[0][0])
    assert ptx.count("st.release.sys.global.b32") >= signals > 0
    behind = [piece for piece in ptx.split("st.release.sys")[:-1] if "st.global." in piece]
    assert behind
    for piece in behind:  # the threads meet between the last store of data and its signal
        assert "bar.sync" in piece[piece.rindex("st.global.") :]


def test_a_kernel_for_amd(assembly: list[str]) -> None:
    assert "s_barrier" in assembly[2]
