"""Names that occur twice, and numbers that have a name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from sources import Source, walk

from .tree import Figure, Tree, place

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
_NUMBER_TYPES = {"Fraction", "int", "float", "int64"}


def shared_class_names(files: Iterable[Source]) -> dict[str, list[str]]:
    """Class name → the places that define it, for names defined in two files or more.

    A leading underscore does not count: ``_Plan`` and ``Plan`` are the same name.
    """
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for source in files:
        for node in walk(source.tree):
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                found[name].append((str(source), place(source, node, node.name)))
    return {
        name: [where for _, where in places]
        for name, places in sorted(found.items())
        if len({file for file, _ in places}) > 1
    }


def is_number(node: ast.AST | None) -> bool:
    """A literal number, arithmetic with one, or a `Fraction`, `int`, `float` made of such."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp():
            return is_number(node.operand)
        case ast.BinOp():
            sides = (node.left, node.right)
            return any(map(is_number, sides)) and all(is_number(s) or _constant(s) for s in sides)
        case ast.Call():
            name = ast.unparse(node.func).rpartition(".")[2]
            return name in _NUMBER_TYPES and bool(node.args) and all(map(is_number, node.args))
    return False


def _constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and CONSTANT.fullmatch(node.id) is not None


def assigned(body: Iterable[ast.stmt]) -> Iterator[tuple[ast.stmt, str, ast.AST]]:
    """(Statement, name, value) of the assignments of a body; tuples are taken apart."""
    for node in body:
        targets: list[ast.expr] = []
        match node:
            case ast.Assign():
                targets = node.targets
            case ast.AnnAssign(value=ast.expr()):
                targets = [node.target]
        for target in targets:
            value = getattr(node, "value")  # noqa: B009
            match target, value:
                case ast.Name(), _:
                    yield node, target.id, value
                case ast.Tuple(), ast.Tuple():
                    for one, number in zip(target.elts, value.elts, strict=False):
                        if isinstance(one, ast.Name):
                            yield node, one.id, number


RATE = re.compile(r"_STEPS? = |\bSTEPS_|\bSTEPS = ")
"""Names of rates at which a loop spends steps of a meter: measured, no thresholds."""


def numeric_constants(source: Source) -> tuple[str, ...]:
    """UPPER_CASE names that a module binds to a number; numberings by `range` are left out."""
    return tuple(
        place(source, node, f"{name} = {ast.unparse(value)}")
        for node, name, value in assigned(source.tree.body)
        if CONSTANT.fullmatch(name) and is_number(value)
    )


def effort_fields(source: Source) -> tuple[str, ...]:
    """Fields with a number as default, or a `setting` of one, in classes named `…Effort`."""
    return tuple(
        place(source, node, f"{owner.name}.{name} = {ast.unparse(value)}")
        for owner in walk(source.tree)
        if isinstance(owner, ast.ClassDef) and owner.name.endswith("Effort")
        for node, name, value in assigned(owner.body)
        if is_number(_default(value))
    )


def _default(value: ast.AST) -> ast.AST:
    """The default of a field: the first argument of `setting(…)`, `default=` of `field(…)`."""
    match value:
        case ast.Call(func=ast.Name(id="setting" | "share"), args=[default, *_]):
            return default
        case ast.Call(func=ast.Name(id="field")):
            given = [one.value for one in value.keywords if one.arg == "default"]
            return given[0] if given else value
    return value


def measured(tree: Tree) -> Iterator[Figure]:
    """All figures of names."""
    shared = shared_class_names(tree.code)
    places = tuple(f"{name}: {', '.join(where)}" for name, where in shared.items())
    yield Figure("class_names", "class names defined in two files or more", len(shared), places)
    count = sum(map(len, shared.values()))
    yield Figure("class_names_classes", "… classes that bear them", count)
    every = tuple(at for source in tree.code for at in numeric_constants(source))
    yield Figure("constants", "numeric module constants", len(every))
    synth = tuple(at for at in every if at.startswith("synth/"))
    held = tuple(at for s in tree.code if s.folder == "synth" for at in effort_fields(s))
    rates = tuple(at for at in synth if RATE.search(at))
    synth = tuple(at for at in synth if not RATE.search(at))
    label = "numeric constants of synth, Effort classes included"
    yield Figure("constants_synth", label, len(synth) + len(held))
    yield Figure("constants_synth_loose", "… outside an Effort class", len(synth), synth)
    yield Figure("constants_synth_effort", "… fields of an Effort class", len(held), held)
    yield Figure("constants_synth_rates", "… measured rates of counted work", len(rates))
