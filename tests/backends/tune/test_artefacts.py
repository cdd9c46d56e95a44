"""The files of a plan: made, judged and executed, also of what is not cut evenly."""

import patterns
import pytest
from shares import in_pieces, with_sizes

from weft.backends.compile.variants import Variant
from weft.backends.execute.execute import Execution
from weft.backends.formats.format import ExecutionRequest
from weft.backends.formats.msccl.format import MscclXml
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.tune.artefacts import make
from weft.dsl.nouns.schedule import dump


def test_chunks_of_unequal_sizes_are_cut_once_more_by_instances() -> None:
    schedule = in_pieces(patterns.ring_allgather(6, 1), [[2, 1]] * 6)
    assert set(schedule.collective.sizes) == {1, 2}
    formats = ["msccl-xml", "mscclpp-json", "mpi"]
    [done] = make(
        {
            "schedule": dump(schedule),
            "variant": Variant(2).to_json(),
            "ranges": [{"name": "a", "low": 1024, "high": 4096}],
            "seed": 0,
            "wanted": {"formats": formats, "runtime": "msccl", "in_place": [False, True]},
        }
    )
    assert [a["format"] for a in done["artefacts"]] == [*formats[:1] * 2, *formats[1:2] * 2, "mpi"]


def test_a_file_of_rounded_shares_is_judged_in_those() -> None:
    """701 : 300 in four segments is rounded to 256ths: no multiple of what the shares were."""
    schedule = with_sizes(patterns.ring_allreduce(2, 1), [701, 300])
    [done] = make(
        {
            "schedule": dump(schedule),
            "variant": Variant(segments=4).to_json(),
            "ranges": [{"name": "a", "low": 1024, "high": 4096}],
            "seed": 0,
            "wanted": {"formats": ["msccl-xml"], "runtime": "msccl", "in_place": [False]},
        }
    )
    [text] = done["files"].values()
    assert read_msccl_xml(text).message_chunks % 1001


def test_ranges_of_one_program_get_files_that_differ_in_names_and_sizes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executed: list[str] = []
    execute = MscclXml.execute

    def counted(self: MscclXml, text: str, where: str, request: ExecutionRequest) -> Execution:
        executed.append(where)
        return execute(self, text, where, request)

    monkeypatch.setattr(MscclXml, "execute", counted)
    given = {
        "schedule": dump(patterns.ring_allreduce(2, 1)),
        "variant": Variant().to_json(),
        "seed": 0,
        "wanted": {"formats": ["msccl-xml"], "runtime": "msccl", "in_place": [False]},
    }
    ranges = [
        {"name": name, "low": low, "high": 2 * low - 1} for name, low in (("a", 64), ("c", 256))
    ]
    both = make({**given, "ranges": ranges})
    assert executed == ["msccl-xml/a.xml"]
    assert both == [make({**given, "ranges": [one]})[0] for one in ranges]
    one, other = (next(iter(done["files"].values())) for done in both)
    assert one != other
    assert one.splitlines()[1:] == other.splitlines()[1:]
