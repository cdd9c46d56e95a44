"""Small questions about syntax trees that the detections of ideas ask."""

import ast
from collections.abc import Iterator

from sources import Source, walk

Loop = ast.For | ast.comprehension


def mentions(source: Source, *words: str) -> bool:
    """The text of a file holds all of these words: a quick look before a walk of its tree."""
    return all(word in source.text for word in words)


def called(node: ast.AST) -> str:
    """The last word of the name that a call calls: `heapq.heappop(x)` is heappop."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def calls(root: ast.AST) -> Iterator[ast.Call]:
    """Every call in a tree."""
    return (node for node in walk(root) if isinstance(node, ast.Call))


def loops(root: ast.AST) -> Iterator[Loop]:
    """Every `for` of a tree, comprehensions too."""
    return (node for node in walk(root) if isinstance(node, Loop))


def names(root: ast.AST) -> set[str]:
    """All identifiers in a tree: names, and the last words of attributes."""
    found = set()
    for node in walk(root):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
    return found


def attributes(root: ast.AST) -> set[str]:
    """The last words of all attributes in a tree: `a.b.c` gives b and c."""
    return {node.attr for node in walk(root) if isinstance(node, ast.Attribute)}


def keywords(call: ast.Call) -> set[str]:
    """The keywords of a call, in lower case."""
    return {one.arg.lower() for one in call.keywords if one.arg}


def texts(root: ast.AST) -> Iterator[ast.Constant]:
    """Every literal text of a tree."""
    for node in walk(root):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def classes(source: Source) -> Iterator[ast.ClassDef]:
    """Every class of a file."""
    return (node for node in walk(source.tree) if isinstance(node, ast.ClassDef))


def annotated(owner: ast.ClassDef) -> dict[str, str]:
    """Field → annotation, of the annotated fields of a class."""
    return {
        ast.unparse(node.target): ast.unparse(node.annotation)
        for node in owner.body
        if isinstance(node, ast.AnnAssign)
    }


def numbers(root: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    """Whole numbers written in a tree, with shifts such as `32 << 10` worked out."""
    for node in walk(root):
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                yield value, node
            case ast.BinOp(
                left=ast.Constant(value=int() as low),
                op=ast.LShift(),
                right=ast.Constant(value=int() as by),
            ) if by < 64:
                yield low << by, node
