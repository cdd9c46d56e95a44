"""Argument parser: one module per verb; only that of the requested verb is imported."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from textwrap import fill, indent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from weft import __version__
from weft.dsl.base import plugins, registry
from weft.dsl.base.errors import UserError, suggest

from ..output.console import Console

if TYPE_CHECKING:
    from ..flags.shared import Flags, NestedVerbs

CLI = "weft.backends.cli"
"""Package whose folders ``flags`` and ``verbs`` hold the modules of verbs."""

VERBS = {
    "synth": "find schedules for a topology and a collective",
    "sweep": "run many searches at once, here or on a cluster",
    "bound": "lower bounds, with their certificates",
    "resynth": "re-synthesize a library for a degraded machine",
    "failures": "bandwidth lost when one link or NIC fails",
    "explain": "why a sketch is infeasible, what its rules cost, what limits a schedule",
    "plan": "order a whole job in time: bound, priorities, comparison; shifts of jobs",
    "place": "where tensor, data and expert parallelism go: all placements, ranked",
    "check": "prove a schedule, algorithm, program, XML or plan; lint the rest",
    "compile": "make a runnable artefact of a schedule, an algorithm or a program",
    "simulate": "predicted time and bandwidth of a schedule, an algorithm or a program",
    "run": "execute on real data and compare with the expected result",
    "profile": "measure a machine, and write its topology",
    "bench": "time plans against the runtime's own collective",
    "tune": "the best plan for every message size, as a library",
    "deploy": "settings and launch lines that make a runtime use a library, and how to prove it",
    "verify-run": "did our files run: nccl-tests output and debug logs against predictions",
    "tuner": "a tuner file for plain NCCL or RCCL, from measured times",
    "show": "print or draw any file",
    "diff": "compare two files of one kind",
    "topo": "topologies: list, show, diff, import, calibrate, search",
    "sketch": "sketches: list, show, fmt, import, derive",
    "workload": "workloads: show",
    "cache": "cached answers of sweeps: list, clear",
    "list": "engines, backends, passes and algorithms",
    "completion": "complete weft's command lines in bash, zsh or fish",
    "doctor": "what is installed, and what to install",
    "serve": "answer command lines from a process that has loaded weft",
}
"""Verbs, each with its line in ``weft --help``; its module has the same name (``_`` for ``-``)."""


class Verb(Protocol):
    """Interface of a verb's module."""

    def run(self, args: Any, console: Console) -> int:
        """Run the verb with the flags, and return the exit code."""
        ...


FLAGS = {
    "synth": "search:SynthFlags",
    "sweep": "search:SweepFlags",
    "bound": "search:BoundFlags",
    "resynth": "search:ResynthFlags",
    "failures": "search:FailuresFlags",
    "explain": "search:ExplainFlags",
    "tune": "search:TuneFlags",
    "plan": "search:PlanFlags",
    "place": "search:PlaceFlags",
    "check": "files:CheckFlags",
    "compile": "files:CompileFlags",
    "simulate": "files:SimulateFlags",
    "run": "files:RunFlags",
    "deploy": "cluster:DeployFlags",
    "verify-run": "cluster:VerifyRunFlags",
    "tuner": "cluster:TunerFlags",
    "show": "files:ShowFlags",
    "diff": "files:DiffFlags",
    "profile": "machines:ProfileFlags",
    "bench": "machines:BenchFlags",
    "list": "machines:ListFlags",
    "completion": "machines:CompletionFlags",
    "doctor": "machines:DoctorFlags",
    "serve": "machines:ServeFlags",
    "topo": "nested:TOPO",
    "sketch": "nested:SKETCH",
    "workload": "nested:WORKLOAD",
    "cache": "nested:CACHE",
}
"""Flags class of each verb, which is all that its help needs."""


class OthersVerb(Verb, Protocol):
    """Interface of the module of a verb from another package."""

    EXAMPLES: str | None

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments to a parser."""


def flags_of(name: str) -> type[Flags] | NestedVerbs | None:
    """Return the flags of a verb; None for those of other packages."""
    if name not in FLAGS:
        return None
    module, _, cls = FLAGS[name].partition(":")
    found: type[Flags] | NestedVerbs = getattr(import_module(f"{CLI}.flags.{module}"), cls)
    return found


def verb_of(name: str) -> Verb:
    """Return the module of a verb; those of other packages are loaded by their entry point."""
    if name in VERBS:
        return cast(Verb, import_module(f"{CLI}.verbs.{name.replace('-', '_')}"))
    return cast(Verb, registry.VERBS.load(name))


def examples_of(verb: OthersVerb) -> str | None:
    """Return the examples of another package's verb under the heading that ours have.

    Raises:
        PluginFault: they are not a text.
    """
    if verb.EXAMPLES is None:
        return None
    text = plugins.expect(str, verb.EXAMPLES, verb, "EXAMPLES")
    heading = "examples:\n"
    return text if text.startswith(heading) else heading + indent(text, "  ")


def other_verbs(arguments: Sequence[str]) -> dict[str, str]:
    """Return the verbs of other packages, each with its line in ``weft help``: its package.

    They are looked up (50 ms) only for a verb that weft lacks and for the help that lists all
    verbs. A name of weft's own stays weft's.
    """
    words = [a for a in arguments if not a.startswith("-")]
    if words[0] in VERBS if words else {"-V", "--version"} & set(arguments):
        return {}
    return {
        name: f"of {' and of '.join(plugin.origin for plugin in plugins)}"
        for name, plugins in registry.VERBS.offers().items()
        if name not in VERBS
    }


class Parser(argparse.ArgumentParser):
    """Argument parser that raises UserError with the nearest valid word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise UserError instead of leaving the process."""
        raise UserError(message, hint=f"{self.prog} --help shows the usage")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Parse as argparse does; an unknown flag suggests the nearest one of its verb."""
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            parser = self._verb_parser(parsed)
            flags = [f for action in parser._actions for f in action.option_strings]
            word = extra[0].partition("=")[0]
            hint = suggest(word, flags) if word.startswith("-") else f"{parser.prog} --help"
            noun = "option" if word.startswith("-") else "argument"
            if word in flags:
                raise UserError(
                    f"{word} stands before the verb",
                    hint=f"options come after it: {parser.prog} … {word}",
                )
            raise UserError(f"{parser.prog}: unknown {noun} {extra[0]!r}", hint=hint)
        return cast(argparse.Namespace, parsed)

    def _verb_parser(self, parsed: argparse.Namespace) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = self
        for dest in ("verb", "what"):
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction) and action.dest == dest:
                    parser = action.choices[getattr(parsed, dest)]
                    break
        return parser

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            flag = action.option_strings[0] if action.option_strings else action.dest
            noun = "verb" if flag in ("verb", "what") else f"value of {flag}:"
            raise UserError(
                f"{self.prog}: unknown {noun} {value!r}",
                hint=suggest(str(value), map(str, action.choices)),
            )


class VerbParser(Parser):
    """The parser of a verb: its module is imported and adds its flags once it is to parse."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = str(self.prog).split()[-1]
        self._configured = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does."""
        self.configure()
        return super().parse_known_args(args, namespace)

    def configure(self) -> None:
        """Add the flags of the verb, once."""
        if self._configured:
            return
        self._configured = True
        from ..flags.shared import Flags, NestedVerbs, add_flags

        flags = flags_of(self._name)
        if flags is None:
            verb = cast(OthersVerb, verb_of(self._name))
            self.epilog = examples_of(verb)
            add_flags(self, Flags)
            verb.configure(self)
        elif isinstance(flags, NestedVerbs):
            self.epilog = flags.EXAMPLES
            self._add_verbs(flags.verbs)
        else:
            self.epilog = flags.EXAMPLES
            add_flags(self, flags)

    def _add_verbs(self, verbs: Mapping[str, type[Flags]]) -> None:
        from ..flags.shared import add_flags

        what = self.add_subparsers(
            dest="what", metavar="|".join(verbs), required=True, parser_class=Parser
        )
        for name, flags in verbs.items():
            width = shutil.get_terminal_size().columns - 2  # as argparse leaves at the margin
            told = None if flags.DESCRIPTION is None else fill(flags.DESCRIPTION, width)
            add_flags(what.add_parser(name, help=flags.HELP, description=told), flags)


def build_parser(others: Mapping[str, str] = MappingProxyType({})) -> Parser:
    """Return the parser of the whole command line; ``others``: as of :func:`other_verbs`."""
    parser = Parser(
        prog="weft",
        description="Collective algorithms: synthesize, bound, check, compile, run.",
        epilog="weft help VERB lists the options of a verb.\n\n"
        "Exit codes: 0 done, 1 the answer is no, 2 an error in what was asked, 3 nothing found "
        "in time,\n4 something is missing, 70 a bug in weft or a plug-in, 130 interrupted.",
    )
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument(
        "--server",
        metavar="ADDRESS",
        help="have the 'weft serve' at this socket answer, or at 'default'",
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, title="verbs", parser_class=VerbParser
    )
    for name, help_line in VERBS.items():
        description = help_line[0].upper() + help_line[1:] + "."
        verbs.add_parser(name, help=help_line, description=description)
    for name, package in others.items():
        verbs.add_parser(name, help=package)
    return parser


class _Version(argparse.Action):
    """Action of ``--version``: print it with Python's, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import platform

        print(f"weft {__version__} (Python {platform.python_version()})")
        parser.exit()
