"""Detects the event loops of the queueing rule, and the heaps written out for them.

The rule: a message holds several rows of the machine at once; if one of them is busy, the message
waits in the queue of that row and lets others pass.
"""

import ast
from collections.abc import Iterable, Iterator

from sources import Source, walk

from .syntax import called, calls, mentions, names
from .tree import Figure, Function, Tree, functions, place

_NOW = {"now", "NOW", "time", "clock"}


def _swaps(node: ast.AST) -> bool:
    """`a, b = b, a`."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=[a, b])], value=ast.Tuple(elts=[c, d])):
            return ast.unparse(a) == ast.unparse(d) and ast.unparse(b) == ast.unparse(c)
    return False


def _writes(node: ast.AST) -> int:
    """How many entries of arrays an assignment sets, outside swaps."""
    if not isinstance(node, ast.Assign):
        return 0
    return sum(isinstance(target, ast.Subscript) for target in node.targets)


def melds(function: Function) -> bool:
    """Pattern of a pairing heap's merge: two parameters change places, then links are written.

    The function swaps two of its own parameters (`a, b = b, a`) and sets at least two entries of
    arrays (child and sibling).
    """
    own = {argument.arg for argument in function.args.args}
    swapped = any(_swaps(node) and names(node) <= own for node in walk(function) if _swaps(node))
    return swapped and sum(map(_writes, walk(function))) >= 2


def sifts_up(function: Function) -> bool:
    """Pattern of a binary heap's push: a `while` loop that goes from i to (i - 1) // 2.

    The halving is written `>> 1`, `>> 2` (records of two or four words), or `// 2`, of an
    expression that subtracts one.
    """
    for loop in walk(function):
        if isinstance(loop, ast.While) and any(map(_is_parent, walk(loop))):
            return True
    return False


def _is_parent(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(
            left=ast.BinOp(op=ast.Sub(), right=ast.Constant(value=1)),
            op=ast.RShift() | ast.FloorDiv(),
        ):
            return True
    return False


def queues_at_busy_row(function: Function, merges: set[str]) -> ast.AST | None:
    """Pattern of waiting: an entry joins the queue of a row that the function found busy.

    Joining is `heappush(queues[row], …)`, or `queues[row] = meld(…)` with the merge of a pairing
    heap. ``row`` was chosen among several: it is a loop variable, was set inside a loop, or is
    the answer of a call. A queue that is simply looked up (``queues[connection[i]]``) is not meant.
    """
    chosen = _chosen(function)
    for node in walk(function):
        queue: ast.AST | None = None
        match node:
            case ast.Call(args=[ast.Subscript() as first, *_]) if called(node) == "heappush":
                queue = first.slice
            case ast.Assign(targets=[ast.Subscript() as first], value=ast.Call() as value):
                if called(value) in merges:
                    queue = first.slice
        if queue is not None and names(queue) & chosen:
            return node
    return None


def _chosen(function: Function) -> set[str]:
    """Names bound by loops of a function, inside loops, or to the answer of a call."""
    found: set[str] = set()
    for node in walk(function):
        match node:
            case ast.For():
                found |= names(node.target)
                for inner in walk(node):
                    if isinstance(inner, ast.Assign):
                        found |= {name for target in inner.targets for name in names(target)}
            case ast.Assign(value=ast.Call()):
                found |= {name for target in node.targets for name in names(target)}
    return found


def notes_later(source: Source) -> bool:
    """Pattern of an agenda: a time in the future, `now + …`, is worked out in the file."""
    for node in walk(source.tree):
        match node:
            case ast.BinOp(op=ast.Add()) if names(node.left) & _NOW:
                return True
    return False


def keeps_times(source: Source, heaps: set[str]) -> bool:
    """Pattern of a clock: the file calls `heappop`, or a push or pop that is written out."""
    return any(called(call) == "heappop" or called(call) in heaps for call in calls(source.tree))


def sifts_down(function: Function) -> bool:
    """Pattern of a binary heap's pop: a `while` loop that compares the children 2i + 1 and on."""
    for loop in walk(function):
        if isinstance(loop, ast.While):
            text = ast.unparse(loop)
            if "2 * " in text and any(isinstance(n, ast.AugAssign) for n in walk(loop)):
                return True
    return False


def event_loops(files: Iterable[Source]) -> Iterator[str]:
    """Files that hold an event loop of the queueing rule.

    Such a file lets entries wait at busy rows (`queues_at_busy_row`), works out times in the
    future (`notes_later`), and keeps a heap of events (`keeps_times`).
    """
    files = tuple(files)
    compiled = tuple(source for source in files if mentions(source, "while "))
    merges = {f.name for source in compiled for f in functions(source) if melds(f)}
    heaps = {
        f.name for source in compiled for f in functions(source) if sifts_up(f) or sifts_down(f)
    }
    for source in files:
        if any(mentions(source, f"{name}(") for name in ("heappush", *merges)):
            waits = [f for f in functions(source) if queues_at_busy_row(f, merges) is not None]
            if waits and notes_later(source) and keeps_times(source, heaps):
                yield place(source, waits[-1], waits[-1].name)


def measured(tree: Tree) -> Iterator[Figure]:
    """Event loops, and heaps that are written out."""
    found = tuple(event_loops(tree.code))
    yield Figure("event_loops", "event loops of the queueing rule", len(found), found)
    for key, label, pattern in (
        ("pairing_heaps", "pairing heaps written out", melds),
        ("binary_heaps", "binary heaps written out (pushes)", sifts_up),
    ):
        places = tuple(
            place(source, f, f.name)
            for source in tree.code
            for f in functions(source)
            if mentions(source, "while ") and pattern(f)
        )
        yield Figure(key, label, len(places), places)
