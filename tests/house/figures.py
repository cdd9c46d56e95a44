"""Structural figures of the working tree, alone or beside those of another revision.

`make house` prints them; `make house BASE=rev` prints base → here. The figures are those of
`HOUSE.md`; every detection states its pattern in its docstring, `--verbose` lists what it counted.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from measure import arrays, cpu, doors, few, graph, loops, names, sizes, walks
from measure.tree import Figure, Tree, at_revision
from sources import ROOT

Measure = Callable[[Tree], Iterable[Figure]]
Table = dict[str, list[Figure]]

SECTIONS: dict[str, tuple[Measure, ...]] = {
    "size": (sizes.plain,),
    "as the formatter writes it": (sizes.as_formatted, sizes.typography),
    "imports": (graph.measured,),
    "names": (names.measured,),
    "prose": (sizes.prose,),
    "what should become fewer": (few.measured,),
    "one idea, several machines": (loops.measured, arrays.measured, doors.measured),
}
WALKS = "walks (functions really entered, in the first process)"
CPU = f"CPU seconds, median of {cpu.TURNS}"


def table(tree: Tree, *, with_walks: bool) -> Table:
    """All figures of one checkout, by section; CPU seconds are not among them."""
    sections = {**SECTIONS, **({WALKS: (walks.measured,)} if with_walks else {})}
    return {
        title: [figure for measure in measures for figure in measure(tree)]
        for title, measures in sections.items()
    }


def number(value: float | None) -> str:
    """A value as the table shows it: thousands apart, floats as they are; `-` for none."""
    if value is None:
        return "-"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"


def rows(tables: list[Table]) -> Iterator[str]:
    """The lines of the printed table: label, values in the order given, ratio of CPU seconds."""
    for title, figures in tables[-1].items():
        yield f"\n{title}"
        others = [{one.key: one for one in table.get(title, ())} for table in tables[:-1]]
        for figure in figures:
            before = [one[figure.key].value if figure.key in one else None for one in others]
            cells = [f"{number(value):>9}" for value in (*before, figure.value)]
            line = f"  {figure.label:<60}" + "  ->".join(cells)
            if title == CPU and before and before[0]:
                line += f"   × {figure.value / before[0]:.2f}"
            yield line


def places(tables: list[Table], only: str) -> Iterator[str]:
    """What was counted in the newest table: all of it, or figures whose key holds a text."""
    for figures in tables[-1].values():
        for figure in figures:
            if figure.places and only in figure.key:
                yield f"\n{figure.label} [{figure.key}]: {number(figure.value)}"
                yield from (f"  {where}" for where in figure.places)


def as_json(tables: list[Table], labels: list[str], *, verbose: bool) -> str:
    """Revision → key → value, or {value, places}."""
    found = {
        label: {
            one.key: {"value": one.value, "places": one.places} if verbose else one.value
            for figures in table.values()
            for one in figures
        }
        for label, table in zip(labels, tables, strict=True)
    }
    return json.dumps(found, indent=1, ensure_ascii=False)


def arguments() -> argparse.Namespace:
    """The options of the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="a git revision to compare the working tree with")
    parser.add_argument("--json", action="store_true", help="as JSON, by revision and key")
    parser.add_argument("--walks", action="store_true", help="run commands under a profile hook")
    parser.add_argument("--cpu", action="store_true", help="time commands, five times each")
    parser.add_argument(
        "--verbose", nargs="?", const="", metavar="KEY", help="list what was counted (for KEY)"
    )
    return parser.parse_args()


def main() -> None:
    """Measure the working tree, and the base if there is one, and print the table."""
    args = arguments()
    with ExitStack() as stack:
        trees = [stack.enter_context(at_revision(args.base))] if args.base else []
        trees.append(Tree(ROOT))
        tables = [table(tree, with_walks=args.walks) for tree in trees]
        if args.cpu:
            Tree(ROOT).run("hatch_build.py")
            for one, figures in zip(tables, cpu.measured(tuple(trees)), strict=True):
                one[CPU] = figures
    labels = [args.base, "working tree"][-len(tables) :]
    if args.json:
        print(as_json(tables, labels, verbose=args.verbose is not None))
        return
    print(" -> ".join(labels), *rows(tables), sep="\n")
    if args.verbose is not None:
        print(*places(tables, args.verbose), sep="\n")


if __name__ == "__main__":
    main()
