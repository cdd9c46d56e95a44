"""Sketches in the verbs: by name or from a file, with parameters, on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.dsl.base.errors import UserError
from weft.dsl.base.foreign import refuse_foreign
from weft.dsl.catalogue import topology as topology_named
from weft.dsl.language.elaborate import elaborate, machine_of
from weft.dsl.language.lint import lint
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse

from ...check.checks import Check
from ..flags.values import split_arguments
from .sketch_import import translated

if TYPE_CHECKING:
    from weft.dsl.language.ast import SketchTree
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.sketch import Sketch
    from weft.dsl.nouns.topology import Topology

    from ..output.console import Console


def read_sketch(text: str, topology: Topology, collective: Collective, console: Console) -> Sketch:
    """Return the rules of a sketch (a name or file) on a machine, for a collective.

    Warns of what looks wrong in it.

    Raises:
        UserError: it does not parse, does not fit the machine, or is for another collective.
    """
    name, arguments = split_arguments(text)
    tree = _tree(name, topology, str(collective.kind), console)
    sketch = elaborate(tree, topology, arguments)
    if sketch.collective and sketch.collective not in (str(collective.kind), collective.name):
        raise UserError(
            f"the sketch {sketch.name} is for {sketch.collective}, not for "
            f"{collective.name or collective.kind}",
            where=tree.span,
            hint="remove its collective line (and its phases) to use it for any",
        )
    for finding in lint(tree, topology, arguments):
        place = f" ({finding.span})" if finding.span else ""
        console.warn(f"{finding.message}{place}")
    return sketch


def _tree(name: str, topology: Topology, kind: str, console: Console) -> SketchTree:
    """Return a sketch by name or from a file; one of TACCL or TE-CCL is translated."""
    source = find_sketch(name)
    if not source.text.lstrip().startswith("{"):
        try:
            return parse(source.text, source.name)
        except UserError:
            refuse_foreign(source.text, source.name)
            raise

    found = translated(source.text, source.name, topology, kind)
    for remark in found.remarks:
        console.say("Remark", str(remark))
    return parse(found.text, f"{source.name}, translated")


def text_on_machine(name: str, arguments: dict[str, int], topology: Topology) -> str:
    """Return the text of a sketch that is valid on a machine.

    Raises:
        UserError: it does not parse, or does not elaborate there.
    """
    source = find_sketch(name)
    elaborate(parse(source.text, source.name), topology, arguments)
    return source.text


def lint_sketch(
    tree: SketchTree, arguments: dict[str, int], topology_text: str | None
) -> list[Check]:
    """Return the errors and warnings of a sketch on the machine it names, or on another one.

    Raises:
        UserError: it does not elaborate there.
    """
    there = topology_named(topology_text) if topology_text else machine_of(tree, arguments)
    if there is None:
        return [Check("form", True, f"sketch {tree.name}; -t TOPO checks it on a machine")]
    rules = len(elaborate(tree, there, arguments).rules)
    checks = [Check("form", True, f"sketch {tree.name}: {rules} rules on {there.name}")]
    for finding in lint(tree, there, arguments):
        place = f"{finding.span}: " if finding.span else ""
        hint = f" ({finding.hint})" if finding.hint else ""
        checks.append(Check(str(finding.concern), False, f"{place}{finding.message}{hint}"))
    return checks
