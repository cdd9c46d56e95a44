"""Triton compiles the kernels for GPUs that are not here; their fences are in the code."""

import ast
import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import symm_files
from casts import two_shot

from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact
from weft.backends.formats.torch_symm.casts import SUMS
from weft.backends.formats.torch_symm.model.language import is_kernel, without_host
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
    if "RANK" in names:
        given["RANK"] = 0
    if "SUM" in names:
        given["SUM"] = m.load_reduce("bfloat16", "sum")
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


def switched() -> str:
    """An allreduce that the switch sums, with one thread block on each rank."""
    options = CompileOptions(instances=1)
    return artefact(two_shot(2), "torch-symm{specialised=true}", options).text


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
    path = folder / "switch.py"
    path.write_text(switched())
    asked.append([str(path), "cuda", "90", "32"])
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


def test_a_kernel_of_sums_in_the_switch(assembly: list[str]) -> None:
    """What goes by the switch's address is fenced off from what goes by the ranks' own."""
    found = re.findall(
        r"fence\.proxy\.alias|bar\.sync|st\.release|(?:atom|ld)\.\S*acquire"
        r"|multimem\.ld_reduce\.\S*add\.acc::f32\.v4\.bf16x2|multimem\.st\.\S*v4\.f32",
        assembly[3],
    )
    order = [word.partition(".")[0] for word, _ in itertools.groupby(found)]
    assert "bar fence multimem multimem fence bar st" in " ".join(order)
    assert order[0] == "st"
    assert order[-2:] in (["ld", "bar"], ["atom", "bar"])


@pytest.mark.parametrize("specialised", [False, True])
def test_kernels_are_for_triton_from_3_4_on(specialised: bool) -> None:
    """Before 3.9 what stands after a branch with a return is compiled as well, with its types, and
    tuples of tuples are no constants: a kernel of float32 or of constants did not compile."""
    text = symm_files.file("ring", Protocol.LL, specialised=specialised)
    for kernel in without_host(text).body:
        for node in ast.walk(kernel):
            for block in (getattr(node, name, None) or [] for name in ("body", "orelse")):
                for one in block[:-1] if isinstance(block, list) and is_kernel(kernel) else ():
                    assert not any(isinstance(x, ast.Return) for x in ast.walk(one))
            if isinstance(node, ast.Subscript) and is_kernel(kernel):
                assert not isinstance(node.value, ast.Subscript)


def test_ptxas_takes_every_load_reduce(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        pytest.skip("Triton is not installed")
    ptxas = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    tree = without_host(switched())
    tree.body = [node for node in tree.body if getattr(node, "name", "") == "load_reduce"]
    names: dict[str, Any] = {}
    exec(compile(tree, "file", "exec"), names)
    texts = [names["load_reduce"](name, op) for name, ops in SUMS.items() for op in ops]
    assert len(set(texts)) == len(texts) == 14
    held = dict(zip(("$0", "$1", "$2", "$3"), ("q1", "q2", "q3", "m"), strict=True))
    for dollar, register in held.items():
        texts = [text.replace(dollar, register) for text in texts]
    path = tmp_path / "sums.ptx"
    head = ".version 8.2\n.target sm_90\n.address_size 64\n.visible .entry k() {\n"
    path.write_text(f"{head}.reg .b64 q<4>; .reg .b32 m;\n" + "\n".join(texts) + "\nret;\n}\n")
    done = subprocess.run([ptxas, "-arch=sm_90", path, "-o", tmp_path / "sums"], check=False)
    assert done.returncode == 0
