"""Execute MSCCL files in the interpreter of programs."""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.base.errors import UserError, require_type
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.runtime import RUNTIMES

from ...execute.execute import LIMITS, Execution, run_all
from .read.collective import collective_of, fit
from .read.columns import code_of
from .read.model import XmlAlgo
from .read.msccl_xml import read_msccl_xml


def run_xml(
    text: str,
    where: str,
    collective: Collective | None = None,
    *,
    elements_per_chunk: int = 5,
    dtypes: Sequence[str] = ("float32", "int32"),
    interleavings: int = 200,
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute an MSCCL XML file in every placement it claims; see :func:`run_algo`."""
    require_type(text, str, "the MSCCL XML to run", "the text of the file, and its name")
    require_type(where, str, "the name of the file", "it is told in errors")
    return run_algo(
        read_msccl_xml(text, where),
        collective,
        elements_per_chunk=elements_per_chunk,
        dtypes=dtypes,
        interleavings=interleavings,
        seed=seed,
        tell=tell,
    )


def run_algo(
    algo: XmlAlgo,
    collective: Collective | None = None,
    *,
    elements_per_chunk: int = 5,
    dtypes: Sequence[str] = ("float32", "int32"),
    interleavings: int = 200,
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a file in every placement it claims, on small, middle and large messages.

    ``collective`` says what the file must achieve; without it ``coll`` does. See
    :func:`~weft.backends.execute.execute.run_all`; a hang in a cut of messages larger than
    ``maxBytes`` does not count.

    Raises:
        BadFile: a text that no runtime reads. UserError: the collective does not fit the file.
    """
    fitted = collective_of(algo) if collective is None else fit(collective, algo)
    padded = algo.message_chunks if algo.coll == "custom" else 0
    return run_all(
        code_of(algo),
        fitted,
        algo.placements,
        elements_per_chunk,
        dtypes,
        interleavings,
        seed,
        padded,
        _least_merge(algo),
        tell,
    )


def _least_merge(algo: XmlAlgo) -> int:
    """Chunks that share an operation in the largest message for which a runtime takes the file."""
    if not algo.max_bytes or algo.max_bytes < 0:
        return 1
    chunk = -(-algo.max_bytes // max(1, algo.message_chunks))
    return min(r.merge(algo.protocol, algo.coll, chunk) for r in RUNTIMES.values())


def elements_of(message_bytes: int | None, algo: XmlAlgo) -> int:
    """Four-byte elements per chunk for a message of that many bytes; 5 where no size is given."""
    if message_bytes is None:
        return 5
    if message_bytes > LIMITS.message_bytes:
        raise UserError("the interpreter takes messages up to 256MiB", where="--size")
    return max(1, message_bytes // (4 * max(1, algo.message_chunks)))
