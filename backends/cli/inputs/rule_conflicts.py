"""The error for sketch rules that exclude each other, each shown with its line."""

from __future__ import annotations

from weft.dsl.base.errors import Infeasible
from weft.dsl.base.spans import Span
from weft.dsl.nouns.sketch import Sketch


class ConflictingRules(Infeasible):
    """Infeasible because of rules that exclude each other; each is shown with its line."""

    def __init__(self, message: str, conflict: tuple[str, ...], spans: tuple[Span, ...]) -> None:
        super().__init__(
            message,
            conflict=conflict,
            where=spans[0] if spans else None,
            hint="drop or loosen one of these rules" if conflict else "",
        )
        self.spans = spans

    def render(self) -> str:
        """Return the message, then every rule with its line."""
        lines = [f"error: {self.message}", *(span.render() for span in self.spans)]
        return "\n".join(lines + (["", f"hint: {self.hint}"] if self.hint else []))


def conflicting(
    sketch: Sketch | None, conflict: tuple[str, ...], statements: tuple[str, ...]
) -> ConflictingRules:
    """Return the error for an infeasible problem; ``conflict``: labels of the sketch's rules."""
    spans: dict[tuple[int, int], Span] = {}
    for rule in sketch.rules if sketch else ():
        if rule.label in conflict and rule.span is not None:
            spans.setdefault((rule.span.start, rule.span.end), rule.span)
    why = "; ".join(statements) or "no schedule obeys the rules"
    if conflict:
        why += ": these exclude each other: " if len(conflict) > 1 else ": it cannot hold: "
        why += "; ".join(conflict)
    return ConflictingRules(why, conflict, tuple(spans[key] for key in sorted(spans)))
