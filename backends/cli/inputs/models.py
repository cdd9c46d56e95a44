"""Model by which programs are timed, from the flags that name it."""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import USUAL_MODEL, ModelChoice, given_number

from ..flags.shared import ModelFlags


def timed_machine(topology: Topology, flags: ModelFlags) -> Topology:
    """Return a machine that has the numbers of ``--timing``, for files that keep their machine.

    Raises:
        UserError: as :func:`chosen_model`; or no link of the machine is of a number's class.
    """
    if not flags.timing:
        return topology
    choice = chosen_model(flags)
    choice.on(topology)
    return replace(topology, timing=topology.timing.with_numbers(choice.given))


def chosen_model(flags: ModelFlags) -> ModelChoice:
    """Return the model that ``--model`` and ``--timing`` request.

    Raises:
        UserError: ``--timing`` without the calibrated model, or not a number of it.
    """
    return ModelChoice(flags.model or USUAL_MODEL, tuple(map(given_number, flags.timing)))
