"""Flags of the verbs: each is stated once, as a typed field of a frozen dataclass.

The parser is made from the fields, and its result becomes an instance, the verb's argument.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Protocol, Self

from weft.dsl.base.environment import SOLVER_MEMORY, parse_memory
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass

from .values import Once, amount, ranks, seconds, sizes, valued, whole

DESCRIPTIONS = {"failures": "what is left of the machine; may be given several times"}
"""Text below the title of a group in the help."""

SEVERAL = ("append", "extend")

MODELS = ("calibrated", "datasheet")
"""Values of ``--model``, the default first."""

RELAYS = ("none", "idle", "all")
"""Values of ``--relays``, the default first."""

OBJECTIVES = ("latency", "bandwidth", "time", "frontier")


def flag(
    *names: str,
    default: Any = None,
    parse: Callable[[str], Any] | None = None,
    group: str = "",
    writes: bool = False,
    **spec: Any,
) -> Any:
    """Return a dataclass field that is a flag; without names, a positional argument.

    ``parse`` makes its value of a text, and errors name the flag. ``group``: the title in the help.
    ``writes``: the path of a file that the verb writes. ``spec`` is for argparse. A flag that may
    be given several times is a tuple.
    """
    if parse is not None:
        spec["type"] = valued(names[-1], parse)
    if spec.get("action") in SEVERAL:
        default = default or ()
    elif spec.get("action") == "store_true":
        default = False
    metadata = {"names": names, "group": group, "writes": writes, "spec": spec}
    return field(default=default, metadata=metadata)


shown = partial(flag, group="output")


@dataclass(frozen=True)
class Flags:
    """Flags of every verb."""

    EXAMPLES: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    """Line in the help of the outer verb, for a verb within a verb."""
    DESCRIPTION: ClassVar[str | None] = None

    json: bool = shown("--json", action="store_true", help="one JSON object on stdout")
    quiet: bool = shown("-q", "--quiet", action="store_true", help="no progress, no summary lines")
    verbose: int = shown("-v", "--verbose", default=0, action="count", help="more of both")
    color: str = shown(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="verdicts in colour (default: auto, on terminals without NO_COLOR)",
    )

    @classmethod
    def of(cls, read: argparse.Namespace) -> Self:
        """Return the flags from the parser's namespace."""
        values = {one.name: getattr(read, one.name) for one in fields(cls)}
        for one in fields(cls):
            if one.metadata["spec"].get("action") in SEVERAL:
                values[one.name] = tuple(values[one.name] or ())
        return cls(**values)

    def texts(self, *, written: bool) -> tuple[tuple[str, str], ...]:
        """Return (name of the flag, text) of the verb's outputs, or else of all other texts."""
        return tuple(
            ((*one.metadata["names"], one.name)[0], text)
            for one in fields(self)
            if one.metadata["writes"] is written
            for text in _texts(getattr(self, one.name))
        )

    def given(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the named flags whose value is not the default of their field."""
        usual = {one.name: one.default for one in fields(self)}
        return tuple(name for name in names if getattr(self, name) != usual[name])


def _texts(value: object) -> tuple[str, ...]:
    """Return the texts in the value of a flag: itself, or those of a flag given several times."""
    each = value if isinstance(value, tuple | list) else (value,)
    return tuple(one for one in each if isinstance(one, str))


@dataclass(frozen=True)
class NestedVerbs:
    """Verbs of a verb (``weft topo show``), each with its flags."""

    EXAMPLES: str
    verbs: Mapping[str, type[Flags]]

    def of(self, read: argparse.Namespace) -> Flags:
        """Return the flags of the inner verb from the parser's namespace."""
        return self.verbs[read.what].of(read)


def add_flags(parser: argparse.ArgumentParser, flags: type[Flags]) -> None:
    """Add all fields of a class, in their order."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for one in fields(flags):
        names, title = one.metadata["names"], one.metadata["group"]
        spec = dict(one.metadata["spec"])
        if title not in groups:
            groups[title] = parser.add_argument_group(title, DESCRIPTIONS.get(title))
        if names:
            spec["dest"] = one.name
        if one.default is not MISSING and spec.get("action") not in SEVERAL:
            spec["default"] = one.default
        if spec.get("action") == "store_true":
            del spec["default"]
        action = groups[title].add_argument(*(names or (one.name,)), **spec)
        setattr(action, "writes", one.metadata["writes"])  # noqa: B010 (no field of argparse's)


def unset(of: type[Flags], name: str) -> Any:
    """Return a flag of another class without its default: None where it was not given."""
    (one,) = [x for x in fields(of) if x.name == name]
    return field(default=None, metadata=one.metadata)


# --- flags of several verbs -----------------------------------------------------------------------


WORKLOAD_FORMATS = (
    "weft",
    "csv",
    "chakra",
    "pytorch",
    "kineto",
    "param",
    "astra-sim",
    "optccl",
    "settings",
)
"""Values of ``--from``: formats of workloads."""


reading = partial(flag, group="reading")


@dataclass(frozen=True)
class WorkloadFlags(Flags):
    """Flags of verbs that read workloads: settings that their formats lack."""

    form: str | None = reading(
        "--from", choices=WORKLOAD_FORMATS, help="format of the workload (default: by its content)"
    )
    groups: str | None = reading(
        "--groups", metavar="FILE", help='process groups of traces: {"id": [ranks]}'
    )
    ranks: int | None = reading(
        "--ranks",
        metavar="N",
        parse=whole(1, 1 << 20),
        help="number of ranks, where a format does not say it (default: those of the machine)",
    )


def topology(**spec: Any) -> Any:
    """Flag ``-t``: a machine."""
    spec = {"help": "a catalogue name (dgx1, torus:4x4), a file, or -", **spec}
    return flag("-t", "--topology", metavar="TOPO", **spec)


in_problem = partial(flag, group="problem")


@dataclass(frozen=True)
class CapableFlags(Flags):
    """Flag ``--capable``: capabilities of single switches of the machine of ``-t``."""

    capable: tuple[str, ...] = in_problem(
        "--capable",
        metavar="SWITCH=WORDS",
        action="append",
        help="what a switch of -t does beside forwarding, instead of what its machine says: "
        "rail0=multicast+reduces+turns, nvswitch0..3=none; repeatable",
    )

    @classmethod
    def of(cls, read: argparse.Namespace) -> Self:
        """Return the flags, with the capabilities in the text of the machine."""
        made = super().of(read)
        if not made.capable:
            return made
        from weft.dsl.catalogue import with_capable  # loads NumPy

        machine = getattr(made, "topology", None)
        if not machine:
            raise UserError("--capable is of the machine of -t", hint="add -t TOPO")
        if isinstance(machine, str):
            return replace(made, topology=with_capable(machine, made.capable))  # type: ignore[call-arg]
        each = tuple(with_capable(text, made.capable) for text in machine)
        return replace(made, topology=each)  # type: ignore[call-arg]


def size(**spec: Any) -> Any:
    """Flag ``--size``: one message size, or a range."""
    spec = {"help": "message size or range: 1MiB, 1KiB:1GiB", **spec}
    return flag("--size", metavar="SIZE", parse=sizes, **spec)


def seed(of: str, **spec: Any) -> Any:
    """Flag ``--seed``: the seed of random choices."""
    return flag("--seed", metavar="N", parse=whole(0), default=0, help=f"{of} (default: 0)", **spec)


def effort(of: str, default: float | None = None, shown: float | None = None, **spec: Any) -> Any:
    """Flag ``--effort``: counted work; ``shown``: the default as the help tells it."""
    told = f"{default if shown is None else shown:g}"
    text = f"work of {of}, counted: 1 is about a CPU second (default: {told})"
    return flag("--effort", metavar="N", parse=amount, default=default, help=text, **spec)


def time(help: str, default: float | None = None, **spec: Any) -> Any:
    """Flag ``--time``: seconds."""
    return flag("--time", metavar="TIME", parse=seconds, default=default, help=help, **spec)


def cut_off(of: str, **spec: Any) -> Any:
    """Flag ``--time``: CPU seconds after which a search ends, with any effort."""
    return time(
        f"cut off {of} after TIME of CPU; the answer then depends on the machine, and says so",
        **spec,
    )


def solver_memory(**spec: Any) -> Any:
    """Flag ``--solver-memory``: the most memory of one solver process."""
    text = (
        "most memory of one solver process; a question that needs more is given up "
        f"(default: ${SOLVER_MEMORY}, or no limit)"
    )
    return flag("--solver-memory", metavar="SIZE", parse=parse_memory, help=text, **spec)


def count(name: str, most: int, help: str, default: int | None = None, **spec: Any) -> Any:
    """Flag whose value is an integer of at least 1."""
    spec = {"metavar": "N", "parse": whole(1, most), "default": default, "help": help, **spec}
    return flag(name, **spec)


def output(help: str, metavar: str = "OUT", **spec: Any) -> Any:
    """Flag ``-o``: the output path."""
    return flag("-o", "--output", writes=True, metavar=metavar, help=help, **spec)


def force(help: str = "overwrite OUT", **spec: Any) -> Any:
    """Flag ``-f``: existing files are replaced."""
    return flag("-f", "--force", action="store_true", help=help, **spec)


def collective(group: str, required: bool = False) -> Any:
    """Flag ``-c``: one collective."""
    return flag(
        "-c",
        "--collective",
        metavar="COLL",
        group=group,
        required=required,
        action=Once,
        help="allgather, allreduce, broadcast …; or a custom one: a .json or .py file, "
        "also that of an algorithm",
    )


of_ranks = partial(flag, metavar="R,R", parse=ranks)
"""Flag that names ranks."""


def root(group: str) -> Any:
    """Flag ``--root``: the root of rooted collectives."""
    text = "root of broadcast, reduce, scatter, gather: a rank of the topology (default 0)"
    return flag("--root", metavar="R", group=group, parse=ranks, help=text)


def roots(group: str) -> Any:
    """Flag ``--roots``: the roots of multiroot collectives."""
    return of_ranks(
        "--roots", group=group, help="roots of the multiroot collectives (default: all)"
    )


Ranks = tuple[int | str, ...]
"""Ranks by number, or by the names of their GPUs."""


class CollectiveChoice(Protocol):
    """Flags that choose a collective and its roots."""

    @property
    def collective(self) -> str | None:
        """Name or file of ``-c``."""

    @property
    def root(self) -> Ranks | None:
        """Root of a rooted collective, as ``--root`` states it."""

    @property
    def roots(self) -> Ranks | None:
        """Roots of a multiroot collective."""


@dataclass(frozen=True)
class CollectiveFlags(Flags):
    """Flags of a collective, if one is named; the machine is known otherwise."""

    collective: str | None = collective("collective")
    root: Ranks | None = root("collective")
    roots: Ranks | None = roots("collective")


@dataclass(frozen=True)
class MaybeProblemFlags(CapableFlags):
    """Flags of a machine and a collective on it, where a file does not state them."""

    topology: str | None = topology(group="problem", action=Once)
    group: Ranks | None = of_ranks(
        "--group",
        group="problem",
        help="process group: ranks of the topology, in the order of the group (0,1,4..7), or the "
        "names of their GPUs (host1.GPU3)",
    )
    collective: str | None = collective("problem")
    root: Ranks | None = root("problem")
    roots: Ranks | None = roots("problem")


@dataclass(frozen=True)
class ProblemFlags(MaybeProblemFlags):
    """Flags of a machine and a collective on it."""

    topology: str = topology(group="problem", action=Once, required=True)
    collective: str = collective("problem", required=True)


@dataclass(frozen=True)
class RelayFlags(Flags):
    """Flag of the GPUs outside a process group."""

    relays: str = in_problem(
        "--relays",
        choices=RELAYS,
        default=RELAYS[0],
        help="GPUs outside --group that forward for it: none, or idle and all, the same where "
        "nothing else runs; ranks then keep their numbers of the whole machine",
    )


@dataclass(frozen=True)
class ModelFlags(Flags):
    """Flags of the model by which programs are timed; schedules have α and bandwidth alone."""

    model: str | None = flag(
        "--model",
        choices=MODELS,
        group="times of programs",
        help="calibrated: start of a call, α by class of link and protocol, bandwidths that are "
        "reached, from published times; datasheet: payloads, α and bandwidth alone (default: "
        f"{MODELS[0]})",
    )
    timing: tuple[str, ...] = flag(
        "--timing",
        metavar="KEY=NUMBER",
        action="append",
        group="times of programs",
        help="of the calibrated model, in place of its default: alpha.nvlink.LL=0.8; repeatable; "
        "`weft topo show -v` lists the keys",
    )


failure = partial(flag, group="failures")


@dataclass(frozen=True)
class DownFlags(Flags):
    """Flags of failed parts of a machine."""

    down: tuple[str, ...] = failure(
        "--down",
        metavar="WHAT",
        nargs="+",
        action="extend",
        help="cables (gpu0-gpu3; one way: gpu0->gpu3; one of several: gpu0-gpu3#2), NICs, "
        "switches, hosts (host2)",
    )
    down_nic: tuple[str, ...] = failure(
        "--down-nic",
        metavar="NIC",
        nargs="+",
        action="extend",
        help="NICs: host0.mlx5_3, nic0.3, host0.nic3, or the GPU that has only this one",
    )
    down_rank: Ranks = failure(
        "--down-rank",
        metavar="R,R",
        parse=ranks,
        action="extend",
        help="GPUs that leave the collective, by rank or name (host1.GPU3); the others are "
        "numbered anew",
    )
