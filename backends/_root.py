"""weft turns a topology, a collective and a sketch into a checked, runnable program.

This is the whole public face. Names are loaded when first used, so `import weft` costs
nothing: neither NumPy nor any solver is loaded. The main job, from a machine to a file that
runs (``docs/library.md`` has the rest):

>>> import weft
>>> ring = weft.topology("ring:4")
>>> allgather = weft.make("allgather", ring.ranks)
>>> weft.bounds(ring, allgather).rounds_per_chunk
Fraction(3, 2)
>>> outcome = weft.synthesize(weft.problem(ring, allgather), effort=5)
>>> [(p.steps, p.rounds, p.factor, p.optimal) for p in outcome.points]
[(2, 3, 2, True)]
>>> schedule = outcome.points[0].schedule
>>> bool(weft.verify(schedule)), round(weft.simulate(schedule, "1MiB").time_us)
(True, 16)
>>> program = weft.compile_schedule(schedule)
>>> weft.check_program(program)
()
>>> text = weft.emit_msccl_xml(program, weft.target("msccl"))
>>> weft.run_msccl_xml(text, "ring.xml", allgather).ok
True
"""

from __future__ import annotations

from types import MappingProxyType

TYPE_CHECKING = False  # `typing` takes half of the time in which a client of a server ends
if TYPE_CHECKING:
    from weft.backends.check.checker import check_program
    from weft.backends.compile.compile import CompileOptions
    from weft.backends.compile.prepare import (
        artefact,
        compile_algorithm,
        compile_program,
        compile_schedule,
    )
    from weft.backends.formats.msccl.emit import emit as emit_msccl_xml
    from weft.backends.formats.msccl.read import collective_of, program_of, read_msccl_xml
    from weft.backends.formats.msccl.run import run_xml as run_msccl_xml
    from weft.backends.formats.mscclpp.interpret import run_plan as run_mscclpp_json
    from weft.backends.formats.mscclpp.lower.emit import emit as emit_mscclpp_json
    from weft.backends.notebook.library import tune
    from weft.backends.notebook.search import (
        bounds,
        compile,
        problem,
        rail_planner,
        simulate,
        synthesize,
        time_frontier,
    )
    from weft.backends.notebook.verbs import (
        deploy,
        diff,
        explain,
        failures,
        place,
        plan,
        profile,
        resynth,
        show,
        verify_run,
    )
    from weft.backends.report.structure import structure
    from weft.dsl.author.builder import Builder
    from weft.dsl.author.recipe import load as load_algorithm
    from weft.dsl.author.recipe import program
    from weft.dsl.author.standard import (
        Allgather,
        Allreduce,
        Alltoall,
        Broadcast,
        Gather,
        Reduce,
        ReduceScatter,
        Scatter,
    )
    from weft.dsl.base.errors import WeftError
    from weft.dsl.catalogue import topology
    from weft.dsl.language.elaborate import elaborate
    from weft.dsl.language.load import load_sketch
    from weft.dsl.language.parse import parse as parse_sketch
    from weft.dsl.nouns.algorithm import Algorithm
    from weft.dsl.nouns.collective import Collective, custom, make
    from weft.dsl.nouns.library import Library
    from weft.dsl.nouns.problem import Objective, Problem
    from weft.dsl.nouns.program import Program, Protocol
    from weft.dsl.nouns.runtime import target
    from weft.dsl.nouns.schedule import Schedule, Transfer
    from weft.dsl.nouns.schedule import read as read_schedule
    from weft.dsl.nouns.schedule import write as write_schedule
    from weft.dsl.nouns.sketch import Sketch
    from weft.dsl.nouns.topology import Topology
    from weft.synth.base.engine import Budget, Outcome, Point, Status
    from weft.synth.bounds import Bounds
    from weft.synth.judge.verify import verify
    from weft.synth.time.program_time import simulate_program

# To add a public name: put it into this table, into __all__, and, for type checkers, into the
# block above.
_HOME = MappingProxyType(
    {
        "Algorithm": "weft.dsl.nouns.algorithm:Algorithm",
        "Allgather": "weft.dsl.author.standard:Allgather",
        "Allreduce": "weft.dsl.author.standard:Allreduce",
        "Alltoall": "weft.dsl.author.standard:Alltoall",
        "Bounds": "weft.synth.bounds:Bounds",
        "Broadcast": "weft.dsl.author.standard:Broadcast",
        "Budget": "weft.synth.base.engine:Budget",
        "Builder": "weft.dsl.author.builder:Builder",
        "Collective": "weft.dsl.nouns.collective:Collective",
        "CompileOptions": "weft.backends.compile.compile:CompileOptions",
        "Gather": "weft.dsl.author.standard:Gather",
        "Library": "weft.dsl.nouns.library:Library",
        "Objective": "weft.dsl.nouns.problem:Objective",
        "Outcome": "weft.synth.base.engine:Outcome",
        "Point": "weft.synth.base.engine:Point",
        "Problem": "weft.dsl.nouns.problem:Problem",
        "Program": "weft.dsl.nouns.program:Program",
        "Protocol": "weft.dsl.nouns.program:Protocol",
        "Reduce": "weft.dsl.author.standard:Reduce",
        "ReduceScatter": "weft.dsl.author.standard:ReduceScatter",
        "Scatter": "weft.dsl.author.standard:Scatter",
        "Schedule": "weft.dsl.nouns.schedule:Schedule",
        "Sketch": "weft.dsl.nouns.sketch:Sketch",
        "Status": "weft.synth.base.engine:Status",
        "Topology": "weft.dsl.nouns.topology:Topology",
        "Transfer": "weft.dsl.nouns.schedule:Transfer",
        "WeftError": "weft.dsl.base.errors:WeftError",
        "artefact": "weft.backends.compile.prepare:artefact",
        "bounds": "weft.backends.notebook.search:bounds",
        "check_program": "weft.backends.check.checker:check_program",
        "collective_of": "weft.backends.formats.msccl.read:collective_of",
        "compile": "weft.backends.notebook.search:compile",
        "compile_algorithm": "weft.backends.compile.prepare:compile_algorithm",
        "compile_program": "weft.backends.compile.prepare:compile_program",
        "compile_schedule": "weft.backends.compile.prepare:compile_schedule",
        "custom": "weft.dsl.nouns.collective:custom",
        "deploy": "weft.backends.notebook.verbs:deploy",
        "diff": "weft.backends.notebook.verbs:diff",
        "elaborate": "weft.dsl.language.elaborate:elaborate",
        "emit_msccl_xml": "weft.backends.formats.msccl.emit:emit",
        "emit_mscclpp_json": "weft.backends.formats.mscclpp.lower.emit:emit",
        "explain": "weft.backends.notebook.verbs:explain",
        "failures": "weft.backends.notebook.verbs:failures",
        "load_algorithm": "weft.dsl.author.recipe:load",
        "load_sketch": "weft.dsl.language.load:load_sketch",
        "make": "weft.dsl.nouns.collective:make",
        "parse_sketch": "weft.dsl.language.parse:parse",
        "place": "weft.backends.notebook.verbs:place",
        "plan": "weft.backends.notebook.verbs:plan",
        "problem": "weft.backends.notebook.search:problem",
        "profile": "weft.backends.notebook.verbs:profile",
        "program": "weft.dsl.author.recipe:program",
        "program_of": "weft.backends.formats.msccl.read:program_of",
        "rail_planner": "weft.backends.notebook.search:rail_planner",
        "read_msccl_xml": "weft.backends.formats.msccl.read:read_msccl_xml",
        "read_schedule": "weft.dsl.nouns.schedule:read",
        "resynth": "weft.backends.notebook.verbs:resynth",
        "run_msccl_xml": "weft.backends.formats.msccl.run:run_xml",
        "run_mscclpp_json": "weft.backends.formats.mscclpp.interpret:run_plan",
        "show": "weft.backends.notebook.verbs:show",
        "simulate": "weft.backends.notebook.search:simulate",
        "simulate_program": "weft.synth.time.program_time:simulate_program",
        "structure": "weft.backends.report.structure:structure",
        "synthesize": "weft.backends.notebook.search:synthesize",
        "target": "weft.dsl.nouns.runtime:target",
        "time_frontier": "weft.backends.notebook.search:time_frontier",
        "topology": "weft.dsl.catalogue:topology",
        "tune": "weft.backends.notebook.library:tune",
        "verify": "weft.synth.judge.verify:verify",
        "verify_run": "weft.backends.notebook.verbs:verify_run",
        "write_schedule": "weft.dsl.nouns.schedule:write",
    }
)

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Allgather",
    "Allreduce",
    "Alltoall",
    "Bounds",
    "Broadcast",
    "Budget",
    "Builder",
    "Collective",
    "CompileOptions",
    "Gather",
    "Library",
    "Objective",
    "Outcome",
    "Point",
    "Problem",
    "Program",
    "Protocol",
    "Reduce",
    "ReduceScatter",
    "Scatter",
    "Schedule",
    "Sketch",
    "Status",
    "Topology",
    "Transfer",
    "WeftError",
    "__version__",
    "artefact",
    "bounds",
    "check_program",
    "collective_of",
    "compile",
    "compile_algorithm",
    "compile_program",
    "compile_schedule",
    "custom",
    "deploy",
    "diff",
    "elaborate",
    "emit_msccl_xml",
    "emit_mscclpp_json",
    "explain",
    "failures",
    "load_algorithm",
    "load_sketch",
    "make",
    "parse_sketch",
    "place",
    "plan",
    "problem",
    "profile",
    "program",
    "program_of",
    "rail_planner",
    "read_msccl_xml",
    "read_schedule",
    "resynth",
    "run_msccl_xml",
    "run_mscclpp_json",
    "show",
    "simulate",
    "simulate_program",
    "structure",
    "synthesize",
    "target",
    "time_frontier",
    "topology",
    "tune",
    "verify",
    "verify_run",
    "write_schedule",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from importlib import import_module

    module, _, attribute = home.partition(":")
    value: object = getattr(import_module(module), attribute)
    globals()[name] = value  # so that the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
