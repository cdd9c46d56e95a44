"""Plans of a library in words; the exact recipe is the candidate's name."""

from __future__ import annotations

import re

from weft.dsl.nouns.library import FOUND_IN_SWITCHES, Candidate, Tuned, TunedPlan

ENGINES = {
    "exact": "proved shortest",
    "packing": "packed trees",
    "flow": "flows",
    "greedy": "greedy matching",
    "sketched": "routes by integer program",
}
"""Ideas of engines; ``classic`` has an algorithm's name instead."""

ASKED = re.compile(r" (?P<size>\d+(?:\.\d+)?(?:[KMGT]i?)?B)(?: \(\d+\))?$")
"""The end of a schedule's name: the size that an engine was asked for."""

ONE_SHOT = "one shot, "
MENDED = re.compile(r"mended \S+")


def idea_words(source: str, engine: str = "") -> str:
    """Return the algorithm of a schedule by its name in a race, and the engine that found it.

    >>> idea_words("packing{trees=1,segments=8} 1GiB", "packing")
    'packed trees found for 1GiB'
    >>> idea_words("one shot, classic 1KiB", "classic"), idea_words("two_shot", "classic")
    ('one shot found for 1KiB', 'two shot')
    >>> idea_words("dgx2_relay:nodes=2 4MiB", "sketched")
    'sketch dgx2_relay:nodes=2, found for 4MiB'
    >>> idea_words("in switches, packing 4MiB", "packing"), idea_words("nvls", "classic")
    ('packed trees through switches that compute found for 4MiB', 'nvls')
    """
    if MENDED.fullmatch(source):
        return "former plan, mended"
    asked = ASKED.search(source)
    if asked is None:
        return source.replace("_", " ") if "{" not in source else _engine(source, engine)
    return f"{_engine(source[: asked.start()], engine)} found for {asked['size']}"


def _engine(asked: str, engine: str) -> str:
    """Return the idea of what was asked: an engine with its options, or a sketch."""
    if asked.startswith(ONE_SHOT):
        return "one shot"
    if asked.startswith(FOUND_IN_SWITCHES):
        idea = _engine(asked.removeprefix(FOUND_IN_SWITCHES), engine)
        return f"{idea} through switches that compute"
    name = asked.partition("{")[0]
    if name.startswith("classic:"):
        return name.removeprefix("classic:").replace("_", " ")
    if name == "portfolio":
        return ENGINES.get(engine, engine if engine not in ("", "portfolio") else "best")
    if name in ENGINES or name == "classic":
        return ENGINES.get(name, "classic algorithm")
    return f"sketch {asked},"


def form_words(plan: TunedPlan) -> str:
    """Return how a plan is compiled: protocol, copies side by side, pieces one after the other."""
    words = [plan.protocol]
    words += [f"{plan.instances} copies"] if plan.instances > 1 else []
    words += [f"{plan.segments} pieces"] if plan.segments > 1 else []
    return ", ".join(words)


def source_of(one: Tuned, plan: TunedPlan) -> str:
    """Return the name of a plan's schedule in the race."""
    found = next((c for c in one.candidates if c.name == plan.candidate), None)
    return plan.candidate if found is None else found.source or found.name


def plan_words(one: Tuned, plan: TunedPlan) -> str:
    """Return a plan as ``packed trees found for 1GiB; LL128, 8 copies, 4 pieces``."""
    return f"{idea_words(source_of(one, plan), plan.engine)}; {form_words(plan)}"


def candidate_words(candidate: Candidate) -> str:
    """Return a candidate as ``swing; Simple, 2 copies, 4 lanes``, different for different ones."""
    if not candidate.source:
        return candidate.name
    form = candidate.name.removeprefix(candidate.source).removeprefix(", ")
    return "; ".join(filter(None, (idea_words(candidate.source), variant_words(form))))


VARIANT_WORDS = (
    (r" x1\b", ""),
    (r" x(\d+)", r", \1 copies"),
    (r" pairs=none", ", a block for each connection"),
    (r" pairs=fewest", ", fewest blocks"),
    (r" pairs=(\w+)", r", blocks by \1"),
    (r" in (\d+) segments", r", \1 pieces"),
    (r" in (\d+) lanes", r", \1 lanes"),
    (r" (sums in \d+ parts)", r", \1"),
    (r" by (\w+)", r", ordered by \1"),
    (r" chains", ", channels of their own for chains"),
)
"""Patterns in the short name of a way to compile, and the words for each."""


def variant_words(name: str) -> str:
    """Return a way to compile in words.

    >>> variant_words("Simple x1 pairs=none in 2 segments")
    'Simple, a block for each connection, 2 pieces'
    >>> variant_words("LL128 x4 chains in 4 lanes")
    'LL128, 4 copies, channels of their own for chains, 4 lanes'
    """
    for short, words in VARIANT_WORDS:
        name = re.sub(short, words, name)
    return name
