"""The import graph: folders and files that know each other, lazy and dynamic imports."""

import ast
from collections.abc import Iterable, Iterator, Mapping

from sources import Import, Source, imports, walk

from .tree import Figure, Tree, place

Graph = Mapping[str, set[str]]


def own_imports(source: Source) -> tuple[Import, ...]:
    """The imports of the package itself, one per imported name."""
    held = vars(source)
    if "own_imports" not in held:
        held["own_imports"] = tuple(
            one for one in imports(source) if one.module.partition(".")[0] == "weft"
        )
    kept: tuple[Import, ...] = held["own_imports"]
    return kept


def file_graph(files: Iterable[Source]) -> Graph:
    """Module → modules it names, counting lazy and TYPE_CHECKING imports."""
    known = {source.module: source for source in files}
    graph: dict[str, set[str]] = {}
    for name, source in known.items():
        targets = set()
        for one in own_imports(source):
            full = f"{one.module}.{one.name}"
            targets.add(full if full in known else one.module)
        graph[name] = targets & known.keys() - {name}
    return graph


def folder_of(source: Source, *, reexports: bool) -> str:
    """The folder of a file as a dotted name; loose files are in the folder that holds them.

    With ``reexports`` a package's `__init__.py` is a file of the folder above, since importing
    from it is importing the package as a whole; else it belongs to its own folder.
    """
    return source.module.rpartition(".")[0] if reexports else source.package


def folder_graph(files: Iterable[Source], *, reexports: bool) -> Graph:
    """Folder → folders that its files name."""
    files = tuple(files)
    home = {source.module: folder_of(source, reexports=reexports) for source in files}
    graph: dict[str, set[str]] = {folder: set() for folder in home.values()}
    for name, targets in file_graph(files).items():
        graph[home[name]] |= {home[target] for target in targets} - {home[name]}
    return graph


def mutual(graph: Graph) -> tuple[str, ...]:
    """Pairs that name each other."""
    pairs = ((a, b) for a, targets in sorted(graph.items()) for b in sorted(targets))
    return tuple(f"{a} <-> {b}" for a, b in pairs if a < b and a in graph.get(b, ()))


def components(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one member (Tarjan 1972, no recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in sorted(graph):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        walk = [(root, iter(sorted(graph[root])))]
        while walk:
            node, targets = walk[-1]
            following = next(targets, None)
            if following is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_cut(stack, node))
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                walk.append((following, iter(sorted(graph.get(following, ())))))
            elif following in stack:
                low[node] = min(low[node], index[following])
    return [sorted(group) for group in found if len(group) > 1]


def _cut(stack: list[str], node: str) -> list[str]:
    at = stack.index(node)
    group = stack[at:]
    del stack[at:]
    return group


def dynamic_imports(files: Iterable[Source]) -> dict[str, list[str]]:
    """File → places of its `import_module(…)` and `__import__(…)` calls."""
    found: dict[str, list[str]] = {}
    for source in files:
        for node in walk(source.tree) if "import_" in source.text else ():
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in ("import_module", "__import__"):
                    found.setdefault(str(source), []).append(place(source, node, ast.unparse(node)))
    return found


def lazy_share(files: Iterable[Source]) -> tuple[int, int]:
    """(Own names imported inside functions, all own names), names for type checkers left out."""
    own = [one for source in files for one in own_imports(source) if not one.typing]
    return sum(not one.eager for one in own), len(own)


def measured(tree: Tree) -> Iterator[Figure]:
    """All figures of the import graph."""
    for key, label, reexports in (
        ("mutual_folders", "folders that import each other (__init__ counted above)", True),
        ("mutual_folders_strict", "… with __init__ counted in its own folder", False),
    ):
        graph = folder_graph(tree.code, reexports=reexports)
        found = mutual(graph)
        yield Figure(key, label, len(found), found)
        tangled = [", ".join(group) for group in components(graph)]
        held = sum(map(len, components(graph)))
        yield Figure(f"{key}_cyclic", "… folders that lie in a cycle", held, tuple(tangled))
    cycles = [", ".join(group) for group in components(file_graph(tree.code))]
    yield Figure("file_cycles", "cycles of files", len(cycles), tuple(cycles))
    lazy, total = lazy_share(tree.code)
    yield Figure("own_imports", "own names imported", total)
    yield Figure("lazy_imports", "… inside functions", lazy)
    yield Figure("lazy_percent", "… inside functions, %", round(100 * lazy / total, 1))
    typing = sum(one.typing for source in tree.code for one in own_imports(source))
    yield Figure("typing_imports", "own names imported for type checkers only", typing)
    dynamic = dynamic_imports(tree.code)
    places = tuple(at for group in dynamic.values() for at in group)
    yield Figure("dynamic_imports", "files with dynamic imports", len(dynamic), places)
