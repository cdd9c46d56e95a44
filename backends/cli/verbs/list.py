"""``weft list``: registered names, with their availability on this machine."""

from __future__ import annotations

import inspect
from typing import Any

from weft.dsl.base.errors import PluginFault, WeftError
from weft.dsl.base.plugins import blamed, plugin_of, warn
from weft.dsl.base.registry import PASSES, REGISTRIES, Registry
from weft.dsl.base.spec import needed_options, option_texts, options_of, text_of
from weft.dsl.base.tables import table

from ...report.report import shown
from ..flags.machines import ListFlags
from ..output.console import Console, Exit, columns


def run(args: ListFlags, console: Console) -> int:
    if args.options and args.kind in REGISTRIES:
        return _options(REGISTRIES[args.kind], console)
    if args.kind == "algorithms":
        from ..work import algorithms  # loads the algorithms

        found = algorithms.entries()
        console.result(algorithms.listing(found), {"status": "ok", "algorithms": found})
        return Exit.DONE
    registry = REGISTRIES[args.kind]
    entries = [describe(registry, name) for name in registry.names()]
    if args.kind == "passes":
        entries = _staged(entries)
    rows = [{**e, "told": e["summary"] if e["available"] else e["reason"]} for e in entries]
    details = [
        f"{e['name']}: " + "; ".join(filter(None, (", ".join(e["options"]), e["cites"])))
        for e in entries
        if e["options"] or e["cites"]
    ]
    text = shown(rows, "name:name", "here:available", "what it is:told")
    if details:
        text += "\n\noptions and sources:\n  " + "\n  ".join(details)
    console.result(text, {"status": "ok", args.kind: entries})
    return Exit.DONE


def _options(registry: Registry, console: Console) -> int:
    """Print every option of every registered class, also of its search effort (``effort``)."""
    found = []
    for name in registry.names():
        try:
            target = registry.load(name)
            with blamed(plugin_of(target), "its options"):
                texts = option_texts(target)
        except PluginFault as error:
            warn(f"{error.message}; its options are left out", error.__cause__)
            continue
        except WeftError:  # it cannot be imported here
            continue
        found += [
            {registry.kind: name, "option": o.name, "default": o.default, "doc": _plain(o.doc)}
            for o in texts
        ]
    rows = [tuple(entry.values()) for entry in found]
    text = table((registry.kind, "option", "default", "meaning"), rows, width=columns())
    console.result(text, {"status": "ok", "options": found})
    return Exit.DONE


def _staged(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from ...compile import pipeline  # loads NumPy

    for e in entries:
        e["stage"] = ""
        if e["available"]:
            try:
                e["stage"] = " -> ".join(pipeline.form(PASSES.load(e["name"])))
            except PluginFault as error:
                e |= {"available": False, "reason": f"{error.message}; {error.hint}"}
        e["summary"] = f"{e['stage']}: {e['summary']}"
        names = {option: option.partition("=")[0] for option in e["options"]}
        e["options"] = [o for o in names if not pipeline.managed(e["name"], names[o])]
    known = {name: place for place, name in enumerate(pipeline.ORDER)}
    return sorted(entries, key=lambda e: known.get(e["name"], len(known)))


def describe(registry: Registry, name: str) -> dict[str, Any]:
    """Return name, summary, options with defaults, availability, and the reason if unavailable."""
    try:
        target = registry.load(name)
        with blamed(plugin_of(target), "its description"):
            return _described(name, target)
    except WeftError as error:
        return {
            "name": name,
            "available": False,
            "reason": f"{error.message}; {error.hint}",
            "summary": "",
            "options": [],
            "cites": "",
        }


def _described(name: str, target: Any) -> dict[str, Any]:
    probe = getattr(target, "availability", None)
    reason = probe() if probe else None
    summary = (inspect.getdoc(target) or "").partition("\n")[0]
    needed = ",".join(f"{option}=…" for option in needed_options(target))
    only = f"Used only where it is named with its options: {name}{{{needed}}}." if needed else ""
    return {
        "name": name,
        "available": reason is None,
        "reason": reason,
        "summary": " ".join(filter(None, (_plain(summary), only))),
        "options": [
            f"{key}={text_of(x.default)}"
            if isinstance(x.default, int | float | str | None)
            else key
            for key, x in options_of(target).items()
        ],
        "cites": str(getattr(target, "cites", "")),
    }


def _plain(text: str) -> str:
    """Return a docstring's text as it is printed: code between single backticks."""
    return text.replace("``", "`")
