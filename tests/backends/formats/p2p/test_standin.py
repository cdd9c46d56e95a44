"""The stand-in for a GPU catches whoever breaks a rule of streams or of NCCL."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from standin_gpu import Deadlock, Violation
from standin_nccl import Standin, installed


@pytest.fixture(params=range(3))
def gpu(request) -> Iterator[Standin]:
    with installed(request.param) as made:
        yield made


class Rank:
    """A rank with a stream, 8 numbers to send, and room for 8."""

    def __init__(self, gpu: Standin, rank: int, name: tuple[int, ...], ranks: int) -> None:
        import cupy

        self.rank, self.cupy, self.nccl = rank, cupy, cupy.cuda.nccl
        self.comm = self.nccl.NcclCommunicator(ranks, name, rank)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        with self.stream:
            self.given = cupy.asarray(np.arange(8, dtype="f4") + 10 * rank)
            self.room = cupy.zeros(8, "f4")

    def send(self, peer: int, array: Any = None, stream: Any = None) -> None:
        array = self.given if array is None else array
        ptr = (stream or self.stream).ptr
        self.comm.send(array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, peer, ptr)

    def recv(self, peer: int, array: Any = None, stream: Any = None) -> None:
        array = self.room if array is None else array
        ptr = (stream or self.stream).ptr
        self.comm.recv(array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, peer, ptr)

    def group(self, *calls: Callable[[], None]) -> None:
        self.nccl.groupStart()
        for one in calls:
            one()
        self.nccl.groupEnd()

    def seen(self) -> list[float]:
        with self.stream:
            return self.room.get().tolist()


def on_ranks(gpu: Standin, main: Callable[[Rank], None], ranks: int = 2) -> None:
    name = gpu.nccl.unique_id()
    gpu.machine.run(ranks, lambda rank: main(Rank(gpu, rank, name, ranks)))


def refused(
    gpu: Standin, words: str, main: Callable[[Rank], None], error: type = Violation
) -> None:
    def whole(r: Rank) -> None:
        main(r)
        r.stream.synchronize()

    with pytest.raises(error, match=words):
        on_ranks(gpu, whole)


def swap(r: Rank) -> None:
    r.group(lambda: r.send(1 - r.rank), lambda: r.recv(1 - r.rank))


def test_a_swap_in_one_group_is_right(gpu):
    def main(r: Rank) -> None:
        for _ in range(3):
            swap(r)
        assert r.seen() == (np.arange(8) + 10 * (1 - r.rank)).tolist()

    on_ranks(gpu, main)


def test_calls_outside_a_group_go_one_after_the_other(gpu):
    def first_send(r: Rank) -> None:
        r.send(1 - r.rank)
        r.recv(1 - r.rank)

    refused(gpu, "deadlock: in groupEnd", first_send, Deadlock)

    def connected(r: Rank) -> None:
        swap(r)  # then groupEnd does not wait any more, but the streams do
        first_send(r)

    with installed(1) as other:
        refused(other, "deadlock: for stream", connected, Deadlock)


def test_one_after_the_other_is_right_where_the_other_end_does_the_opposite(gpu):
    def main(r: Rank) -> None:
        (r.send if r.rank else r.recv)(1 - r.rank)
        (r.recv if r.rank else r.send)(1 - r.rank)
        assert r.seen() == (np.arange(8) + 10 * (1 - r.rank)).tolist()

    on_ranks(gpu, main)


def test_messages_match_by_order_alone(gpu):
    def main(r: Rank) -> None:
        low, high = slice(0, 4), slice(4, 8)
        if r.rank == 0:
            r.group(lambda: r.send(1, r.given[low]), lambda: r.send(1, r.given[high]))
        else:
            r.group(lambda: r.recv(0, r.room[high]), lambda: r.recv(0, r.room[low]))
            assert r.seen() == [4, 5, 6, 7, 0, 1, 2, 3]

    on_ranks(gpu, main)


def test_lengths_must_be_equal(gpu):
    def main(r: Rank) -> None:
        r.group(lambda: r.send(1 - r.rank), lambda: r.recv(1 - r.rank, r.room[:6]))

    refused(gpu, r"32 .* 24|24 .* 32", main)


def test_a_message_without_a_receiver_is_reported(gpu):
    def main(r: Rank) -> None:
        swap(r)
        if r.rank:
            r.recv(0)

    refused(gpu, "deadlock: for stream .*rank 1: 32 from rank 0", main, Deadlock)


@pytest.mark.parametrize("peer", [0, 2, -1])
def test_peers_are_the_others(gpu, peer):
    refused(gpu, f"rank 0 talks to {peer}", lambda r: r.send(peer) if r.rank == 0 else None)


def test_nothing_is_received_where_something_is_sent(gpu):
    def main(r: Rank) -> None:
        r.group(lambda: r.send(1 - r.rank), lambda: r.recv(1 - r.rank, r.given))

    refused(gpu, "received where something is sent", main)


def goes_wrong(main: Callable[[Rank], None]) -> bool:
    """Whether it goes wrong for some seed; on a GPU it may be right for long."""
    failed = 0
    for seed in range(10):
        with installed(seed) as fresh:
            try:
                on_ranks(fresh, main)
            except (Violation, AssertionError):
                failed += 1
    return failed > 0


def test_received_data_is_unreadable_until_it_has_arrived():
    """A kernel on another stream that does not wait reads poison, or is caught in the act."""

    def main(r: Rank) -> None:
        swap(r)
        with r.cupy.cuda.Stream(non_blocking=True):
            other = r.room.copy()
            assert other.get().tolist() == (np.arange(8) + 10 * (1 - r.rank)).tolist()

    assert goes_wrong(main)


def test_the_host_sees_nothing_before_the_stream_has_come_so_far(gpu):
    def main(r: Rank) -> None:
        swap(r)
        with r.cupy.cuda.Stream(non_blocking=True):
            early.append(r.room.get().tolist())

    early: list[list[float]] = []
    on_ranks(gpu, main)
    assert any(values != [10 * (1 - r) + k for k in range(8)] for r, values in enumerate(early))


def test_an_event_orders_two_streams(gpu):
    def main(r: Rank) -> None:
        swap(r)
        other = r.cupy.cuda.Stream(non_blocking=True)
        other.wait_event(r.stream.record())
        with other:
            assert r.room.copy().get().tolist() == (np.arange(8) + 10 * (1 - r.rank)).tolist()

    on_ranks(gpu, main)


def test_memory_must_live_until_all_streams_are_done_with_it():
    def main(r: Rank) -> None:
        with r.cupy.cuda.Stream(non_blocking=True) as other:
            lost = [r.cupy.zeros(8, "f4")]
            other.synchronize()
            r.group(lambda: r.send(1 - r.rank, lost[0]), lambda: r.recv(1 - r.rank))
            lost.clear()  # its own stream is done with it
            other.synchronize()
        r.stream.synchronize()

    assert goes_wrong(main)


def test_a_kernel_that_knows_memory_by_two_names_is_refused(gpu):
    import cupy

    kernel = cupy.ElementwiseKernel("T i0", "T o0", "o0 = i0;")
    a = cupy.zeros(8, "f4")
    with pytest.raises(Violation, match="two names"):
        kernel(a[:4], a[2:6])
    with pytest.raises(Violation, match="other shapes"):
        kernel(a[:4], a[4:7])


def test_a_graph_must_be_forked_and_joined_by_events(gpu):
    import cupy

    stream, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    outside = other.record()
    stream.begin_capture()
    with pytest.raises(Violation, match="waits for what is outside"):
        stream.wait_event(outside)
    with pytest.raises(Violation, match="cannot be waited for"):
        stream.synchronize()
