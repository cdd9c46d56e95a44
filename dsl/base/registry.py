"""Names to lazily imported things: a literal table for our own, entry points for outsiders.

Nothing is imported until it is used, so that listing names loads no solver. Built-in names
are not entry points: those live in installed metadata and go stale in an editable checkout.

>>> "exact" in ENGINES.names()
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import Any

from .errors import Missing, UnknownName, UserError, an
from .installed import points_of
from .lazy_dataclass import Frozen
from .plugins import Plugin, blamed, plugin_of, warn
from .plugins import load as load_plugin
from .spec import Spec, build, parse_spec


class Registry(Frozen):
    """Things of one kind by name: ``"name" -> "module:attribute"``.

    ``group`` is the entry-point group in which installed packages may offer more of them;
    ``needs``: the attributes that each of these must have; ``reasons``: their methods that return
    why something cannot be done, a text or None; ``meant``: hints for names of other programs.
    """

    kind: str
    group: str
    builtin: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    meant: Mapping[str, str] = field(default_factory=dict)

    def offers(self) -> dict[str, tuple[Plugin, ...]]:
        """Return the plug-ins by name, sorted: more than one where packages share a name."""
        found: dict[str, dict[str, Plugin]] = {}
        for point in points_of(self.group):
            if point.value != self.builtin.get(point.name):
                plugin = Plugin.of(self.kind, point)
                found.setdefault(point.name, {}).setdefault(point.value, plugin)
        return {name: tuple(plugins.values()) for name, plugins in found.items()}

    def plugins(self) -> tuple[str, ...]:
        """Return the names that installed packages add to ours, sorted."""
        return tuple(name for name in self.offers() if name not in self.builtin)

    def names(self) -> tuple[str, ...]:
        """Return every known name, sorted."""
        return tuple(sorted({*self.builtin, *self.offers()}))

    def load(self, name: str, *, spec: Spec | None = None) -> Any:
        """Return the object that a name stands for; imports its module.

        A name of ours stands for ours, with a warning about each plug-in that wants it.

        Raises:
            UnknownName: the name is not registered; suggests the nearest.
            UserError: two packages offer it; the message names both.
            Missing: its module needs a package that is not installed.
            BrokenPlugin: the plug-in cannot be loaded.
        """
        offered = self.offers().get(name, ())
        if name in self.builtin:
            for plugin in offered:
                warn(f"{plugin} is not used: weft has {an(self.kind)} of that name")
            return self._own(name)
        if not offered:
            place = spec.span if spec else None
            raise UnknownName(self.kind, name, self.names(), where=place, meant=self.meant)
        if len(offered) > 1:
            raise UserError(
                f"several packages provide the {self.kind} {name!r}: "
                + ", ".join(f"{one.author} ({one.target})" for one in offered),
                where=spec.span if spec else None,
                hint="uninstall all but one of them",
            )
        return load_plugin(offered[0], self.needs, self.reasons)

    def _own(self, name: str) -> Any:
        target = self.builtin[name]
        module, _, attribute = target.partition(":")
        try:
            found = import_module(module)
            return getattr(found, attribute) if attribute else found
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] == "weft":  # ours is never missing: a bug
                raise
            raise Missing(
                f"the {self.kind} {name!r} needs the Python package {error.name!r}",
                hint=f"install it: pip install {str(error.name).partition('.')[0]}",
            ) from error
        except AttributeError:
            raise Missing(
                f"the {self.kind} {name!r} is not at {target}",
                hint=f"reinstall the package of {module}",
            ) from None

    def make(self, text: str, origin: str = "") -> Any:
        """An instance from ``name{option=value}``.

        Raises:
            SyntaxProblem, UnknownName, UserError, Missing: as :func:`.parse_spec`,
            :func:`~weft.dsl.base.spec.build` and :meth:`load`.
            PluginFault: the class of a plug-in fails.
        """
        return self.create(parse_spec(text, origin or self.kind))

    def create(self, spec: Spec) -> Any:
        """An instance from a spec; errors as :meth:`make`."""
        cls = self.load(spec.name, spec=spec)
        with blamed(plugin_of(cls), "making it from its options"):
            return build(spec, cls)


ENGINES = Registry(
    "engine",
    "weft.engines",
    {
        "classic": "weft.synth.engines.classic.engine:Classic",
        "exact": "weft.synth.engines.exact:Exact",
        "packing": "weft.synth.engines.packing.engine:Packer",
        "greedy": "weft.synth.engines.greedy.engine:Greedy",
        "flow": "weft.synth.engines.flow.engine:FlowEngine",
        "intervals": "weft.synth.engines.intervals.engine:Intervals",
        "sketched": "weft.synth.engines.sketched.engine:Sketched",
        "portfolio": "weft.synth.engines.portfolio.engine:Portfolio",
    },
    needs=("name", "cites", "availability", "refuses", "solve"),
    reasons=("availability", "refuses"),
)
"""Engines: frozen dataclasses that follow ``weft.synth.base.engine.Engine``."""

PASSES = Registry(
    "pass",
    "weft.passes",
    {
        "aggregate": "weft.backends.compile.passes.aggregate:Aggregate",
        "chain": "weft.backends.compile.passes.sync:Chain",
        "channels": "weft.backends.compile.passes.channels:Channels",
        "dead": "weft.backends.compile.passes.prune:Dead",
        "elide": "weft.backends.compile.passes.prune:Elide",
        "fuse": "weft.backends.compile.passes.fuse:Fuse",
        "instances": "weft.backends.compile.passes.instances:Instances",
        "lift": "weft.backends.compile.passes.lift:Lift",
        "lower": "weft.backends.compile.passes.lower:Lower",
        "fence": "weft.backends.compile.passes.sync:Fence",
        "prune": "weft.backends.compile.passes.prune:Prune",
        "scratch": "weft.backends.compile.passes.scratch:Scratch",
        "sync": "weft.backends.compile.passes.sync:Sync",
        "threadblocks": "weft.backends.compile.passes.threadblocks:ThreadBlocks",
        "trace": "weft.backends.compile.passes.trace:Trace",
        "weave": "weft.backends.compile.passes.weave:Weave",
    },
    needs=("name", "apply"),
)
"""From schedules, algorithms and programs to flows, from flows to programs, and among each."""

BACKENDS = Registry(
    "backend",
    "weft.backends",
    {
        "msccl-xml": "weft.backends.formats.msccl.format:MscclXml",
        "mscclpp-json": "weft.backends.formats.mscclpp.format:MscclppJson",
        "program": "weft.backends.formats.program:ProgramFile",
        "goal": "weft.backends.formats.goal.format:GoalFile",
        "chakra-et": "weft.backends.formats.chakra.format:ChakraEt",
        "mpi": "weft.backends.formats.p2p.format:MpiFile",
        "torch": "weft.backends.formats.p2p.format:TorchFile",
        "cupy-nccl": "weft.backends.formats.p2p.format:CupyNcclFile",
        "jax": "weft.backends.formats.p2p.format:JaxFile",
        "torch-symm": "weft.backends.formats.torch_symm.format:TorchSymm",
        "torch-calls": "weft.backends.formats.calls.format:TorchCalls",
    },
    reasons=("availability",),
    meant={
        name: f"{own} is for it"
        for own, names in (
            ("chakra-et", "astra-sim astrasim astra_sim astra"),
            ("goal", "loggopsim atlahs"),
            ("msccl-xml", "rccl nccl msccl-executor-nccl mscclang"),
            ("torch-symm", "triton vllm symmetric-memory"),
        )
        for name in names.split()
    },
)
"""Formats of artefacts: they turn programs into files that runtimes read."""

VERBS = Registry("verb", "weft.verbs", needs=("EXAMPLES", "configure", "run"))
"""Verbs that other packages add to the command line: modules like those of ``cli/verbs``."""

IMPORTERS = Registry("importer", "weft.importers", needs=("recognizes", "read"))
"""Formats of topology files that other packages read; ours are the table of ``dsl/importers``."""

VIEWS = Registry(
    "view",
    "weft.views",
    {
        name: f"weft.backends.notebook.views:{name}"
        for name in ("topology", "schedule", "frontier", "library")
    },
)
"""Functions from a noun to the HTML that a notebook shows, or None."""

FRAMES = Registry(
    "table",
    "weft.tables",
    {
        name: f"weft.backends.notebook.frames:{name}"
        for name in ("schedule", "frontier", "library", "simulation", "simulations")
    },
)
"""Functions from a noun to its ``pandas.DataFrame``."""

REGISTRIES = {"engines": ENGINES, "backends": BACKENDS, "passes": PASSES}
"""All of them, by the word ``weft list`` uses."""
