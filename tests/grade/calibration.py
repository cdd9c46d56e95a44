"""Times of programs beside times that others measured: error by size, by table, and what it is of.

Run: ``python tests/grade/calibration.py FILE.json [--json] [-v] [--only NAME…]``. The file has
tables of nccl-tests, RCCL, MSCCL and MSCCL++ runs (``tables``: ``id``, ``topology``, ``gpu``,
``ranks``, ``nodes``, ``network``, ``collective``, ``launch``, ``library``, ``chosen``, ``note``,
``rows_bytes_us``). For each one the programs are built that its library chooses from, and timed by
the simulator under the calibrated runtime model; the least time counts, as it does for the
library. Nothing is fitted here, but for ``--left-out``: each machine is then predicted with
the model's fitted numbers as the other machines tell them.

Bands: small to 64 KiB, mid to 16 MiB, large above. Rows whose sums are made in switches (NVLS,
SHARP) are no program of ours: they are listed apart, with the reason, and so are spikes: rows that
took longer than a smaller *and* a larger message whose times are alike. Rows predicted by MSCCL
files and by MSCCL++'s packets are summed up beside the bands as well. Settings that a table names
(``NCCL_PROTO=LL``) are kept.

Every row is also set beside the least time of any program of its library, with each number of the
model at the most that was seen of it; rows below :data:`NEAR` of it are listed with the reason.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from left_out import fitted_defaults, leave_out
from measured_machines import machine_of
from measured_runs import Options, baselines_of, least_us
from measured_tables import MeasuredRow, MeasuredTable, read_tables

from weft.backends.tune.baselines import best_of
from weft.dsl.base.errors import WeftError
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.timing import TimingNumber
from weft.dsl.nouns.topology import Topology

BANDS = (("small", 64 << 10), ("mid", 16 << 20), ("large", math.inf))
"""Bands of message sizes, by the largest of each."""

FILES, PACKETS = "MSCCL file", "packets"
"""Beginning of the names of programs that a library reads from files, and of MSCCL++'s kernels."""

UNPREDICTABLE = (WeftError, ValueError, LookupError, ArithmeticError)
"""Faults of a table that has facts of no machine of ours, or of one on which nothing runs."""

WITHIN = 0.5
"""Largest error of rows that count as within."""

NEAR = 0.97
"""Measured ÷ least time of any program, below which a row needs a reason."""

LISTED = {
    ("v100x8-ar", 128 << 20): "129 GB/s of bus, where NCCL reckons with 120: reach was more, once",
    ("h200x8-mscclpp-ar", 1 << 20): "MSCCL++ may have taken a kernel in which switches sum",
}
"""Rows below it that are known, by table and bytes, and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured row: what was predicted, and by which program; ``apart``: why it is no program.

    ``over_bound``: measured over the least time of any program of the library. A table without
    rows has one whose band is empty.
    """

    table: str
    band: str
    bytes: int
    measured_us: float
    predicted_us: float
    how: str
    apart: str = ""
    over_bound: float = math.nan

    @property
    def error(self) -> float:
        """Predicted ÷ measured, less one."""
        return self.predicted_us / self.measured_us - 1


def band_of(size: int) -> str:
    """The band of a message size."""
    return next(name for name, most in BANDS if size <= most)


def rows_of(table: MeasuredTable, given: tuple[TimingNumber, ...] = ()) -> Iterator[Row]:
    """Every row of a table, predicted, or with the reason why it cannot be.

    ``given``: replaces defaults of the runtime model.
    """
    options, why = _options(table, given)
    spikes, machine = table.spikes, None if given else _machine(table)
    for row in table.rows:
        band = band_of(row.bytes)
        over = _over_bound(table, machine, row)
        if row.wrong or why:
            why_not = row.wrong or why
            yield Row(table.name, band, row.bytes, row.us, math.nan, "", why_not, over)
            continue
        try:
            found = best_of(options, row.bytes)
        except UNPREDICTABLE as error:
            reason = _reason(error)
            yield Row(table.name, band, row.bytes, row.us, math.nan, "", reason, over)
            continue
        assert found is not None
        apart = found.apart or spikes.get(row.bytes, "")
        yield Row(table.name, band, row.bytes, row.us, found.us, found.how, apart, over)
    if not table.rows:
        yield Row(table.name, "", 0, math.nan, math.nan, "", f"no rows; {why}".rstrip("; "))


def _options(table: MeasuredTable, given: tuple[TimingNumber, ...]) -> tuple[Options, str]:
    """What may have run, and why nothing can; one of them is empty."""
    if table.why_apart:
        return [], table.why_apart
    try:
        found = baselines_of(table, given)
    except UNPREDICTABLE as error:
        return [], _reason(error)
    return found, "" if found else f"no program of the library is known for {table.kind}"


def _machine(table: MeasuredTable) -> Topology | None:
    """The machine of a table of a collective; None if it is not known."""
    with suppress(*UNPREDICTABLE):
        return machine_of(table) if table.kind else None
    return None


def _over_bound(table: MeasuredTable, machine: Topology | None, row: MeasuredRow) -> float:
    """Measured over the least time of any program; not a number where that is not known."""
    if machine is None or row.wrong:
        return math.nan
    with suppress(*UNPREDICTABLE):
        return row.us / least_us(table, machine, row.bytes)
    return math.nan


def below_bound(rows: Sequence[Row], tables: Sequence[MeasuredTable]) -> list[dict[str, Any]]:
    """The rows below :data:`NEAR` of the least time of any program, and why; empty: unknown."""
    sums = {t.name for t in tables if "nvls" in t.text("chosen").lower()}
    return [
        {
            "name": row.table,
            "bytes": row.bytes,
            "over_bound": round(row.over_bound, 4),
            "why": row.apart
            or LISTED.get((row.table, row.bytes))
            or ("NVLS: switches sum" if row.table in sums else ""),
        }
        for row in rows
        if row.over_bound < NEAR
    ]


def bound_text(rows: Sequence[Row], below: Sequence[dict[str, Any]]) -> str:
    """Measured over the least time of any program: by table, and the rows below it."""
    lines = ["", "measured ÷ least time of any program, each number at the most that was seen:"]
    for name in dict.fromkeys(row.table for row in rows):
        over = [r.over_bound for r in rows if r.table == name and not math.isnan(r.over_bound)]
        if over:
            lines.append(
                f"  {name:24}{len(over):5} rows  least {min(over):.3f}  median {median(over):.3f}"
            )
    lines += [f"below {NEAR}:"] if below else []
    for one in below:
        why = one["why"] or "NOT KNOWN WHY"
        lines.append(
            f"  {one['name']:24}{format_bytes(one['bytes']):>9}{one['over_bound']:8.3f}  {why}"
        )
    return "\n".join(lines)


def _reason(error: Exception) -> str:
    """Why a program cannot be timed, in one line."""
    told = error.message if isinstance(error, WeftError) else str(error)
    return f"cannot be modelled: {told}"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows, median of the error's size, and the share of rows within."""
    errors = [abs(row.error) for row in rows]
    if not errors:
        return {"rows": 0, "median": None, "within_50": None}
    within = sum(x <= WITHIN for x in errors) / len(errors)
    return {"rows": len(errors), "median": round(median(errors), 4), "within_50": round(within, 4)}


def group_summary(rows: Sequence[Row]) -> dict[str, Any]:
    """:func:`summary` of some rows, with the worst error."""
    worst = max((row.error for row in rows), key=abs, default=None)
    return {**summary(rows), "worst": None if worst is None else round(worst, 4)}


def by_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each table and band: median and worst error, and the programs."""
    found = []
    for name in dict.fromkeys(row.table for row in rows):
        for band, _ in BANDS:
            mine = [row for row in rows if (row.table, row.band) == (name, band)]
            if not mine:
                continue
            worst = max((row.error for row in mine), key=abs)
            found.append(
                {
                    "name": name,
                    "band": band,
                    "rows": len(mine),
                    "median": round(median(abs(row.error) for row in mine), 4),
                    "worst": round(worst, 4),
                    "how": ", ".join(dict.fromkeys(row.how for row in mine)),
                }
            )
    return found


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    counted = [row for row in rows if not row.apart]
    apart = [row for row in rows if row.apart]
    return {
        "schema": 1,
        "bands": {name: summary([row for row in counted if row.band == name]) for name, _ in BANDS},
        "files": group_summary([row for row in counted if row.how.startswith(FILES)]),
        "packets": group_summary([row for row in counted if row.how.startswith(PACKETS)]),
        "tables": by_table(counted),
        "apart": [
            {
                "name": name,
                "rows": sum(bool(row.band) for row in mine),
                "why": why,
                "median": None
                if any(math.isnan(row.predicted_us) for row in mine)
                else round(median(abs(row.error) for row in mine), 4),
            }
            for name, why in dict.fromkeys((row.table, row.apart) for row in apart)
            if (mine := [row for row in apart if (row.table, row.apart) == (name, why)])
        ],
    }


def left_out(tables: Sequence[MeasuredTable]) -> dict[str, Any]:
    """Errors of every machine with numbers that were fitted to the others."""
    machines, every = [], []
    for one in leave_out([table for table in tables if not _options(table, ())[1]]):
        rows = [row for table in one.tables for row in rows_of(table, one.given) if not row.apart]
        every += rows
        bands = {name: [row for row in rows if row.band == name] for name, _ in BANDS}
        machines.append(
            {
                "machine": one.name,
                "tables": [table.name for table in one.tables],
                "bands": {name: summary(mine) for name, mine in bands.items() if mine},
                "numbers": [asdict(number) for number in one.numbers],
            }
        )
    fitted = [
        {
            "key": key,
            "value": float(value),
            "families": list(one.families),
            "runtimes": list(one.runtimes),
            "fitted_to": one.source,
        }
        for one in fitted_defaults()
        for key, value in one.values.items()
    ]
    bands = {name: summary([row for row in every if row.band == name]) for name, _ in BANDS}
    return {"bands": bands, "machines": machines, "fitted": fitted}


def left_out_text(found: dict[str, Any]) -> str:
    """The errors without each machine, and the fitted numbers, as lines."""
    lines = ["", "each machine predicted with numbers fitted to the others:"]
    for one in found["machines"]:
        errors = ", ".join(f"{name} {band['median']:.1%}" for name, band in one["bands"].items())
        lines.append(f"  {one['machine']:20}{errors}")
        for number in one["numbers"]:
            told = ", ".join(number["told"]) or "nothing: the default"
            lines.append(
                f"    {number['key']:20}{number['shipped']:8.3g} ->{number['value']:8.3g}  {told}"
            )
    for name, one in found["bands"].items():
        if one["rows"]:
            lines.append(
                f"{name:7}{one['rows']:5} rows  median {one['median']:.1%}  "
                f"within ±50 % {one['within_50']:.1%}, left out"
            )
    lines += ["", "fitted numbers:"]
    for one in found["fitted"]:
        where = ", ".join([*one["families"], *one["runtimes"]]) or "all"
        lines.append(f"  {one['key']:20}{one['value']:8.3g}  {where}: {one['fitted_to']}")
    return "\n".join(lines)


def text(found: dict[str, Any]) -> str:
    """The report as lines."""
    lines = [f"{'table':24}{'band':7}{'rows':>5}{'median':>9}{'worst':>9}  how"]
    for one in found["tables"]:
        lines.append(
            f"{one['name']:24}{one['band']:7}{one['rows']:5}{one['median']:9.1%}"
            f"{one['worst']:+9.1%}  {one['how']}"
        )
    lines += ["", "apart:"]
    for one in found["apart"]:
        error = "" if one["median"] is None else f", median {one['median']:.1%}"
        lines.append(f"  {one['name']}: {one['rows']} rows{error}: {one['why']}")
    lines.append("")
    for name, one in found["bands"].items():
        if one["rows"]:
            lines.append(
                f"{name:7}{one['rows']:5} rows  median {one['median']:.1%}  "
                f"within ±50 % {one['within_50']:.1%}"
            )
    for one, what in ((found["files"], f"{FILES}s"), (found["packets"], f"MSCCL++ {PACKETS}")):
        if one["rows"]:
            told = f"median {one['median']:.1%}  worst {one['worst']:+.1%}"
            lines.append(f"{what}: {one['rows']} rows  {told}")
    return "\n".join(lines)


def main() -> int:
    """Print the report; 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--only", nargs="+", default=(), help="only tables of these names")
    parser.add_argument("--left-out", action="store_true", help="and each machine by the others")
    parser.add_argument("-v", action="store_true", help="print every row")
    args = parser.parse_args()
    try:
        tables = read_tables(args.file)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows = [row for t in tables if not args.only or t.name in args.only for row in rows_of(t)]
    if args.v:
        for row in rows:
            told = f" apart: {row.apart}" if row.apart else ""
            print(
                f"{row.table:24}{format_bytes(row.bytes):>9}{row.measured_us:12.2f}"
                f"{row.predicted_us:12.2f}{row.error:+8.1%}{row.over_bound:8.3f}  {row.how}{told}",
                file=sys.stderr,
            )
    found, below = report(rows), below_bound(rows, tables)
    found["below_runtime_bound"] = below
    told = text(found) + bound_text(rows, below)
    if args.left_out:
        found["left_out"] = left_out(tables)
        told += left_out_text(found["left_out"])
    print(json.dumps(found) if args.json else told)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
