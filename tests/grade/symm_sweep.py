"""Files for torch symmetric memory: classic algorithms, grade schedules, random ones, and mutants.

Run: ``python tests/grade/symm_sweep.py [classic] [machines] [grade] [random] [mutants]
[switches]``, in pieces with ``--kept FILE`` (:mod:`kept`). Each is compiled to a file under Simple
and LL, proved from its text, and its plan and its kernel are executed on all ranks, the kernel
under weak memory. A line each: ranks, blocks, operations, CPU seconds. ``mutants`` spoils files in
one place: kernels of a fence, an epoch or a counter, programs of an operation, an offset or a
channel; it says who found each, and how many the memory model finds alone. ``switches`` spoils
programs whose sums and copies are the switch's. ``--triton`` runs the files whole instead, under
Triton's own interpreter (:mod:`triton_ranks`): tables and constants, bfloat16 and int32, three
orders each (one with ``--in-turn``), and a sum inside ``torch.compile``. Grade schedules are found
anew with ``--effort``. The exit code is 1 if a right one is found wrong, or a wrong one right.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import switch_mutants
import symm_files
from casts import spread_all, two_shot
from kept import Line, add_flags, part, swept, told
from programs import KINDS, cases

from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_algorithm, lower_schedule
from weft.backends.compile.source import fitted
from weft.backends.formats.format import ExecutionRequest
from weft.backends.formats.mscclpp.casts.emit import cast_plan
from weft.backends.formats.torch_symm.casts import SUMS
from weft.backends.formats.torch_symm.emit import emit
from weft.backends.formats.torch_symm.format import TorchSymm
from weft.backends.formats.torch_symm.judge import judge
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.schedule import Schedule
from weft.synth.engines.classic.text import named_algorithm

PROTOCOLS = (Protocol.SIMPLE, Protocol.LL)
ELEMENTS = 40
"""Elements of a unit in Triton's runs: a custom collective's units are multiples of 16 bytes."""

ORDERS = 12
"""Orders of the plan interpreter; the kernel is executed in a sixth of them."""


TYPES = (("int32", True), ("bfloat16", False), ("int32", False))
"""Types of Triton's runs, and whether by the instructions for NVIDIA."""


def file(noun: Any, protocol: Protocol, *, specialised: bool = False) -> str:
    """The file of a schedule or an algorithm, whatever joins its ranks."""
    if isinstance(noun, Schedule):
        noun = fitted(noun, TorchSymm.name, 1)[0]
    lower: Any = lower_schedule if isinstance(noun, Schedule) else lower_algorithm
    options = CompileOptions(protocol=protocol, in_place=bool(getattr(noun, "in_place", False)))
    program = lower(noun, options)
    made = TorchSymm(domain=program.rank_count, specialised=specialised)
    return made.emit(program, MSCCL, None)


def wrong(text: str) -> str | None:
    """Who finds a file wrong: reader, checker, or an execution; None: nobody."""
    try:
        found = errors(judge(text, "file")[1])
    except (BadFile, UserError):
        return "reader"
    if found:
        return f"checker: {found[0].check}"
    done = TorchSymm().execute(text, "file", ExecutionRequest(("int32", "float32"), ORDERS))
    if done.ok:
        return None
    return "memory model" if "the kernel" in done.detail else "plan interpreter"


def one(name: str, noun: Any) -> Line:
    """Check one schedule or algorithm under both protocols; its line."""
    cells, files, bad = [], 0, 0
    for protocol in PROTOCOLS:
        begin = time.process_time()
        try:
            text = file(noun, protocol)
        except UserError as error:
            cells.append(f"{protocol}: not compiled: {error.message}")
            continue
        found = wrong(text)
        files, bad = files + 1, bad + bool(found)
        plan = TorchSymm().read(text, name).plan
        blocks = max(len(g.blocks) for g in plan.gpus)
        ops = sum(len(b.ops) for g in plan.gpus for b in g.blocks)
        cells.append(
            f"{protocol}: {len(plan.gpus)} ranks, {blocks} blocks, {ops} operations, "
            f"{time.process_time() - begin:.1f} s: {found or 'right'}"
        )
    return Line(name, f"{name}: {'; '.join(cells)}", files, bad)


def interpreted(name: str, noun: Any, *, in_turn: bool) -> Line:
    """Run the whole files of a schedule or an algorithm under Triton's interpreter; its line."""
    import triton_ranks

    cells, runs, bad, begin = [], 0, 0, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for number, (protocol, specialised) in enumerate(product(PROTOCOLS, (False, True))):
            try:
                text = file(noun, protocol, specialised=specialised)
            except UserError as error:
                cells.append(f"{protocol}: not compiled: {error.message}")
                continue
            path = Path(folder, f"{protocol}_{specialised}.py")
            path.write_text(text)
            every = list(enumerate(TYPES))
            for seed, (dtype, ptx) in every[number % 3 :][:1] if in_turn else every:
                found = triton_ranks.wrong(path, seed, ELEMENTS, dtype, 2, ptx)
                runs, bad = runs + 1, bad + bool(found)
                cells += [f"{path.stem} {dtype} {seed}: {found}"] if found else []
    told = "; ".join(cells) or "right"
    return Line(
        name, f"{name}: {runs} runs, {time.process_time() - begin:.1f} s: {told}", runs, bad
    )


def in_a_graph() -> int:
    """Run a sum inside ``torch.compile``; 1 if it is wrong."""
    import symm_host

    algorithm = named_algorithm("ring{collective=allreduce,ranks=2}").algorithm
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in_a_graph.py")
        path.write_text(file(algorithm, Protocol.LL))
        right = all(symm_host.compiled(path))
    sys.stdout.write(f"inside torch.compile, one graph: {'right' if right else 'WRONG'}\n")
    return int(not right)


def mutants(count: int) -> int:
    """Spoil files; the number of mutants that nobody finds."""
    who: Counter[str] = Counter()
    alone = missed = done = 0
    rng = random.Random(1)
    texts = [symm_files.file("ring"), symm_files.file("two shot", Protocol.LL)]
    texts += [symm_files.file("one shot"), symm_files.file("broadcast", Protocol.LL)]
    kernels = [
        (name, symm_files.file(one.program, one.protocol).replace(one.before, one.after))
        for name, one in symm_files.FENCES.items()
    ]
    while done < count:
        if kernels:
            what, text = kernels.pop()
            found = "memory model" if symm_files.problem(text, 60) else None
        else:
            made = symm_files.mutated(rng.choice(texts), rng)
            if made is None or made[1].startswith(("swap", "drop: nop")):
                continue  # these may be harmless
            text, what = made
            found = wrong(text)
        done += 1
        who[found or "nobody"] += 1
        missed += found is None
        try:
            alone += bool(symm_files.problem(text, 12))
        except (BadFile, KeyError, ValueError, IndexError, AssertionError):
            alone += 1
        sys.stdout.write(f"{what}: {found or 'MISSED'}\n")
    sys.stdout.write(f"{done} mutants, {missed} missed; {dict(who)}; the model alone: {alone}\n")
    return missed


def switches() -> int:
    """Spoil programs of the switch's sums and copies; the number of mutants that nobody finds."""
    who: Counter[str] = Counter()
    for schedule in (two_shot(3), two_shot(4), spread_all(3)):
        plan = cast_plan(schedule, "any", None, in_place=False, lanes=1)
        for name, mutant in switch_mutants.mutants(plan):
            if name.startswith("relaxed"):
                continue  # the kernel's relaxed signals are releases
            try:
                text = emit(mutant, schedule.collective.in_grains(), sums=SUMS)
            except UserError:
                who["not written"] += 1
                continue
            found = wrong(text)
            who[(found or "MISSED").split(":")[0]] += 1
            if not found:
                sys.stdout.write(f"{name}: MISSED\n")
    sys.stdout.write(f"{who.total()} mutants of switches: {dict(who)}\n")
    return who["MISSED"]


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["classic", "machines", "random", "mutants"])
    parser.add_argument("--most", type=int, default=16, help="ranks")
    parser.add_argument("--random", type=int, default=100, help="random algorithms")
    parser.add_argument("--effort", type=float, default=0.2)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--triton", action="store_true", help="run whole files by Triton")
    parser.add_argument("--in-turn", action="store_true", help="a file in one of Triton's types")
    parser.add_argument("--found", type=Path, help="folder of the grade's schedules")
    add_flags(parser)
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if kind in options.what]
    found = cases(kinds, options.most, options.effort, options.random, options.found)
    asked = part(found, options.part)
    bad = 0
    if options.triton:
        os.environ["TRITON_INTERPRET"] = "1"
        bad += in_a_graph()
    if kinds:
        run = partial(interpreted, in_turn=options.in_turn) if options.triton else one
        bad += told(swept(asked, run, options.kept))
    if "mutants" in options.what:
        bad += mutants(options.mutants)
    if "switches" in options.what:
        bad += switches()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
