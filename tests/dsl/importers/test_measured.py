"""Texts of p2pBandwidthLatencyTest and nccl-tests, whole and broken."""

import pytest
from nccl_tests_text import nccl_tests_text

from weft.dsl.base.errors import BadFile
from weft.dsl.importers.generations import CHIPS, NO_PEER_ACCESS, family_of, family_of_chips
from weft.dsl.importers.nccl_tests import read_run
from weft.dsl.importers.recognized import read_any
from weft.dsl.machines.spec import parse_spec
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import families

P2P = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, Tesla V100-SXM2-16GB, pciBusID: 6, pciDeviceID: 0, pciDomainID:0
Device: 1, Tesla V100-SXM2-16GB, pciBusID: 7, pciDeviceID: 0, pciDomainID:0
Device: 2, Tesla V100-SXM2-16GB, pciBusID: a, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
Device=0 CANNOT Access Peer Device=2
Device=1 CAN Access Peer Device=0
Device=1 CAN Access Peer Device=2
Device=2 CANNOT Access Peer Device=0
Device=2 CAN Access Peer Device=1

***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.
So you can see lesser Bandwidth (GB/s) and unstable Latency (us) in those cases.

P2P Connectivity Matrix
     D\\D     0     1     2
     0\t     1     1     0
     1\t     1     1     1
     2\t     0     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 768.57   9.90   9.96
     1   9.93 770.47  10.03
     2   9.94   9.97 768.95
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 769.32  48.33   9.91
     1  48.35 771.22  24.22
     2   9.93  24.21 769.71
Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 781.45  10.72  10.88
     1  10.70 782.62  10.91
     2  10.85  10.94 781.84
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 780.67  96.48  10.87
     1  96.49 780.28  48.35
     2  10.86  48.36 780.67
P2P=Disabled Latency Matrix (us)
   GPU     0      1      2
     0   1.83  14.79  15.31
     1  14.85   1.81  15.16
     2  14.94  15.30   1.86

   CPU     0      1      2
     0   3.42   8.80   8.65
     1   8.62   3.35   8.51
     2   8.49   8.44   3.31
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1      2
     0   1.83   1.90  15.09
     1   1.91   1.81   1.88
     2  15.01   1.89   1.85

   CPU     0      1      2
     0   3.43   2.46   8.48
     1   2.51   3.41   2.47
     2   8.49   2.50   3.40

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.
"""  # noqa: E501

NCCL = """# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728 step: 8(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid  31021 on    node-a device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid  31021 on    node-a device  1 [0x0f] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid  31021 on    node-a device  2 [0x47] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid  31021 on    node-a device  3 [0x4e] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float    none      -1    12.00    0.00    0.00      0    11.9    0.00    0.00    N/A
        4096          1024     float    none      -1    12.02    0.34    0.34      0    12.0    0.34    0.34    N/A
     1048576        262144     float    none      -1    17.24    60.8    60.8      0    17.2    60.9    60.9    N/A
    16777216       4194304     float    none      -1    95.90     175     175      0    95.8     175     175    N/A
   134217728      33554432     float    none      -1    683.1     196     196      0    683.0     196     196    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 86.4
# Collective test concluded: sendrecv_perf
"""  # noqa: E501


def read(text: str) -> Topology:
    return read_any(text, "text", parse_spec("text"))


def link(machine: Topology, a: int, b: int) -> tuple[float, float]:
    (found,) = [x for x in machine.links if (x.src, x.dst) == (a, b)]
    return float(found.bandwidth), float(found.latency)


def test_pairs_have_their_bandwidth_and_latency_with_p2p():
    machine = read(P2P)
    assert (machine.ranks, len(machine.links)) == (3, 6)
    assert link(machine, 0, 1) == link(machine, 1, 0) == (48.3, 1.9)
    assert link(machine, 1, 2) == link(machine, 2, 1) == (24.2, 1.9)
    assert link(machine, 0, 2) == link(machine, 2, 0) == (9.92, 15.1)


def test_two_ways_that_are_slower_together_share_a_bandwidth():
    ((name, ends, bandwidth),) = [
        (r.name, {(read(P2P).links[i].src, read(P2P).links[i].dst) for i in r.links}, r.bandwidth)
        for r in read(P2P).resources
    ]
    assert (name, ends, float(bandwidth)) == ("pair 0-2", {(0, 2), (2, 0)}, 10.9)
    assert any("2 directions have no peer access" in note for note in read(P2P).notes)


def test_the_reader_stands_in_front_in_matrices_of_reads():
    text = P2P.replace("0 769.32  48.33 ", "0 769.32  30.00 ")
    assert link(read(text), 0, 1)[0] == 30
    assert link(read(text.replace("(P2P Writes)", "(P2P Reads)")), 1, 0)[0] == 30


def test_the_way_through_the_host_is_said_where_it_is_quicker():
    slow = P2P.replace("48.33   9.91", "4.95   9.91").replace("48.35 771", "4.95 771")
    (note,) = (note for note in read(slow).notes if "times as quick" in note)
    assert note.startswith(
        "the way through the host is 2 times as quick as peer access for 2 of 6 directions "
        "(9.915GB/s with P2P disabled): p2p=off takes it"
    )
    off = read_any(slow, "text", parse_spec("text:p2p=off"))
    assert link(off, 0, 1) == (9.95, 15.1)
    assert any(NO_PEER_ACCESS in note for note in off.notes)
    assert not any("times as quick" in note for note in read(P2P).notes)


def test_without_p2p_the_other_matrices_are_taken():
    lines = P2P.splitlines()
    keep = [i for i, line in enumerate(lines) if "P2P=Enabled" in line]
    text = "\n".join(x for i, x in enumerate(lines) if not any(k <= i < k + 5 for k in keep))
    machine = read(text)
    assert link(machine, 0, 1)[0] == pytest.approx(9.9, rel=0.02)
    assert {r.name for r in machine.resources} == {"pair 0-1", "pair 0-2", "pair 1-2"}


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("1  48.35 771.22  24.22", "1  48.35 771.22", "has 2 numbers for 3 columns", 28),
        ("1  48.35 771.22  24.22", "1  -48.3 771.22  24.22", "'-48.3' is not a positive", 28),
        ("1  48.35 771.22  24.22", "1  48.35 771.22  fast", "'fast' is not a positive", 28),
        ("     1  48.35 771.22  24.22\n", "", "the row of GPU 1 is missing", 28),
        ("   D\\D     0      1      2\n     0 769.32", "     0 769.32", "column numbers", 26),
    ],
)
def test_a_broken_matrix(old, new, message, line):
    assert old in P2P
    with pytest.raises(BadFile, match=message) as error:
        read(P2P.replace(old, new))
    assert f"text:{line}" in error.value.render()


def test_a_text_that_ends_early():
    with pytest.raises(BadFile, match="the row of GPU 2 is missing"):
        read(P2P[: P2P.index("     2   9.93  24.21")])


def test_matrices_of_two_sizes():
    text = P2P.replace("     2  10.86  48.36 780.67\n", "").replace(
        "Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1      2\n"
        "     0 780.67  96.48  10.87\n"
        "     1  96.49 780.28  48.35",
        "Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 780.67  96.48\n"
        "     1  96.49 780.28",
    )
    with pytest.raises(BadFile, match="not of 3 GPUs"):
        read(text)


def test_nccl_tests_say_what_a_port_carries():
    machine = read(NCCL)
    assert (machine.ranks, len(machine.nodes), machine.hosts) == (4, 5, 1)
    bandwidth, half = link(machine, 0, 4)
    assert bandwidth == pytest.approx(200, rel=0.02)
    assert 2 * half == pytest.approx(12, rel=0.02)
    assert len({(x.bandwidth, x.latency) for x in machine.links}) == 1
    assert not any("whole collective" in note for note in machine.notes)


def test_of_a_collective_the_bus_bandwidth_is_taken_and_alpha_is_no_message_s():
    factor = 2 * 3 / 4
    lines = []
    for line in NCCL.replace("sendrecv_perf", "all_reduce_perf").splitlines():
        words = line.split()
        if words[0].isdigit():
            words[7] = f"{float(words[6]) * factor:.2f}"
            line = "  ".join(words)
        lines.append(line)
    machine = read("\n".join(lines))
    assert link(machine, 0, 4)[0] == pytest.approx(300, rel=0.02)
    assert any("whole collective" in note for note in machine.notes)


def test_hosts_of_nccl_tests():
    machine = read(NCCL.replace("node-a device  2", "node-b device  0"))
    assert machine.host_of == (0, 0, 1, 0)
    assert any("several hosts" in note for note in machine.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "float    none      -1    17.24    60.8 ",
            "float    none   17.24 ",
            "13 columns in the head",
        ),
        ("#  Rank  1 Group", "#  Renk  1 Group", "ranks and devices"),
    ],
)
def test_a_broken_table(old, new, message):
    assert old in NCCL
    with pytest.raises(BadFile, match=message):
        read(NCCL.replace(old, new))


def test_one_size_is_not_enough():
    rows = [x for x in NCCL.splitlines() if not x.strip()[:1].isdigit()]
    with pytest.raises(BadFile, match="at least two sizes"):
        read("\n".join(rows))


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (["NVIDIA A100-SXM4-80GB"] * 2, "a100"),
        (["NVIDIA H100 80GB HBM3"], "h100"),
        (["NVIDIA H100 PCIe"], "pcie"),
        (["AMD Instinct MI250X"], "mi250"),
        (["AMD Instinct MI210"], "mi250"),
        (["AMD Instinct MI300X OAM"], "mi300x"),
        (["Tesla V100S-PCIE-32GB"], "pcie"),
        (["NVIDIA A10G", "NVIDIA A10"], "a10"),
        (["NVIDIA H20"], "h20"),
        (["NVIDIA GH200 480GB"], "gh200"),
        (["NVIDIA L40S", "NVIDIA L40S"], "l40s"),
        (["NVIDIA GeForce RTX 4090"], "rtx"),
        (["Tesla T4", "NVIDIA A10"], ""),
        (["GRID K1"], ""),
        ([], ""),
    ],
)
def test_names_of_gpus_tell_their_family(names: list[str], family: str) -> None:
    assert family_of(names) == family
    assert not family or family in families()


def test_every_chip_is_of_a_known_family() -> None:
    assert set(CHIPS.values()) <= set(families())
    assert family_of_chips(["90", "90"]) == "h100"
    assert family_of_chips(["908"]) == family_of_chips(["gfx908"]) == "mi100"
    assert not family_of_chips(["90", "80"])


def test_the_machine_has_the_family_that_the_text_names() -> None:
    assert read_any(P2P, "p2p.txt", parse_spec("p2p.txt")).timing.family == "v100"
    assert read_any(NCCL, "nccl.txt", parse_spec("nccl.txt")).timing.family == "a100"


@pytest.mark.parametrize("us", [1e-300, 1e-5, 1e11, 1e300])
def test_times_that_no_call_takes_are_refused_with_their_line(us: float) -> None:
    text = nccl_tests_text("all_reduce", [(1024, 10.0), (2048, us), (4096, 30.0)], gpus=4)
    with pytest.raises(BadFile, match="no call takes") as told:
        read_run(text, "ar.txt")
    assert (told.value.where or "").startswith("ar.txt:")


@pytest.mark.parametrize("size", ["9223372036854775808", "1" + "0" * 40, "9" * 4000])
def test_sizes_that_no_machine_holds_are_refused_with_their_line(size: str) -> None:
    text = nccl_tests_text("all_reduce", [(1024, 10.0), (2048, 20.0)], gpus=4)
    with pytest.raises(BadFile, match="more than 1024 TiB") as told:
        read_run(text.replace("  2048  ", f"  {size}  "), "ar.txt")
    assert told.value.where == "ar.txt:11"
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("wrong", ["nan", "-nan", "inf", "1e+400", "-1", "FAILED"])
def test_errors_that_are_no_number_or_not_finite_are_wrong_results(wrong: str) -> None:
    """Versions before 2.13 print the largest difference: ``nan`` where the results had one."""
    lines = nccl_tests_text("all_reduce", [(1024, 10.0), (2048, 20.0)], gpus=4).splitlines()
    lines[9] = f"{lines[9][:-1]}{wrong}"
    with pytest.raises(BadFile, match="results were wrong at 1024 bytes in place") as told:
        read_run("\n".join(lines), "ar.txt")
    assert told.value.where == "ar.txt:10"


def test_numbers_of_thousands_of_digits_are_no_bug() -> None:
    many = "9" * 5000
    text = nccl_tests_text("all_reduce", [(1024, 10.0), (2048, 20.0)], gpus=4)
    with pytest.raises(BadFile, match="ranks and devices"):
        read_run(text.replace("Rank  1", f"Rank  {many}"), "ar.txt")
    assert read_run(text.replace("step: 2(", f"warmup iters: {many} iters: 20 ("), "ar.txt").warm
