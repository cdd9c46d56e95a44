"""Importer of the text of ``nvidia-smi topo -m``.

NV# between two GPUs is that many NVLinks, either direct or, where every pair shows the same number
and a GPU has fewer links, to an NVSwitch. If NVLink connects all GPUs, PCIe is omitted and each NIC
belongs to the nearest GPUs; otherwise the classes PIX, PXB, PHB, NODE and SYS give the PCIe tree.
The text has neither the GPU's generation nor bandwidths; assumptions are recorded in notes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ..machines.hosts import Cables, Host, HostSwitch, Nics, build
from ..machines.names import named_places
from ..machines.nics import own_number
from ..machines.spec import MachineSpec
from ..nouns.parts import Medium
from ..nouns.timing import MachineTiming
from ..nouns.topology import NodeKind, Topology
from ..symmetry.symmetry import GUESSED, guess
from .defaults import (
    ALPHA_NOTE,
    CABLE_ALPHA,
    CPU_LINK,
    GENERATION_NIC,
    GENERATION_PCIE,
    NET_ALPHA,
    NVLINK,
    NVLINKS_PER_GPU,
    NVSWITCH_ALPHA,
    PCIE_ALPHA,
)
from .gpu_names import family_of
from .host_plan import Cable, HostPart, HostPlan, Plug, build_hosts, copied, with_media
from .smi_matrix import PATHS, Matrix, read_matrix

_LISTED = re.compile(r"^\s*GPU \d+: (.+?) \(UUID", re.MULTILINE)
"""A line of ``nvidia-smi -L``."""

Pairs = dict[tuple[int, int], int]
"""Number of NVLinks between GPUs a < b."""


def read_nvidia_smi(text: str, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the matrix.

    Options: ``gpu=p100|v100|a100|h100|b200``; ``bw=`` per NVLink (with PCIe: ``pcie_bw=``,
    ``cpu_bw=``); ``without=`` NICs; ``nodes=``, ``fabric=``, ``nic_bw=`` and the like.

    Raises:
        BadFile: an invalid text. BadTopology: an asymmetric matrix.
    """
    matrix, notes = _asked(read_matrix(text, where), options)
    nvlinks = _nvlinks(matrix)
    switched = _is_switched(nvlinks, matrix.gpus, options)
    generation = options.choice("gpu", _generation(nvlinks, matrix.gpus, switched), NVLINK)
    lane = options.bandwidth("bw", NVLINK[generation])
    notes = [
        ALPHA_NOTE,
        *_generation_notes(generation, lane, bool(nvlinks), options),
        *notes,
    ]
    if switched or _joined(nvlinks, matrix.gpus):
        made = _over_nvlink(matrix, nvlinks, switched, generation, where, options, notes)
    else:
        made = _over_pcie(matrix, nvlinks, lane, generation, where, options, notes)
    return replace(made, timing=MachineTiming(_family(text, generation, bool(nvlinks), options)))


def _asked(matrix: Matrix, options: MachineSpec) -> tuple[Matrix, list[str]]:
    """Return the matrix without the NICs of ``without=``, and a note on them."""
    n = matrix.gpus
    gone = [n + i for i in named_places(options.words("without"), matrix.own[n:], "NIC")]
    listed = ", ".join(map(matrix.shown, gone))
    notes = [f"left out as without= asks: {listed}"] if gone else []
    return matrix.without(gone), notes


def _served_note(matrix: Matrix, served: Mapping[int, Sequence[int]]) -> str:
    """Say which GPUs each NIC serves, and over what."""
    listed = []
    for nic, gpus in served.items():
        names = ", ".join(matrix.names[g] for g in gpus)
        listed.append(f"{matrix.own[nic][0]} {names} ({matrix.cells[gpus[0]][nic]})")
    return f"NICs serve the nearest GPUs: {'; '.join(listed)}"


def _nearest(matrix: Matrix, gpu: int) -> tuple[int, ...]:
    """Return the NICs of the best class of a GPU."""
    row = matrix.cells[gpu]
    classes = {
        c: PATHS.index(row[c]) for c in range(matrix.gpus, len(matrix.names)) if row[c] in PATHS
    }
    return tuple(c for c, k in classes.items() if k == min(classes.values()))


def _family(text: str, generation: str, has_nvlink: bool, options: MachineSpec) -> str:
    """Return the GPUs' family: by ``gpu=``, by the names that ``nvidia-smi -L`` lists beside the
    matrix, or the generation that bandwidths are assumed of."""
    if options.has("gpu"):
        return generation
    if names := _LISTED.findall(text):
        return family_of(names)
    return generation if has_nvlink and not options.has("bw") else ""


def _nvlinks(matrix: Matrix) -> Pairs:
    return {
        (a, b): count
        for b in range(matrix.gpus)
        for a in range(b)
        if matrix.cells[a][b].startswith("NV") and (count := int(matrix.cells[a][b][2:]))
    }


def _is_switched(nvlinks: Pairs, gpus: int, options: MachineSpec) -> bool:
    """Return True if all pairs show the same count, in total more links than a GPU has.

    Without ``gpu=``, more than any GPU has: four GPUs with NV6 may be GH200 cabled directly, or
    V100 on a switch.
    """
    counts = set(nvlinks.values())
    if len(nvlinks) != gpus * (gpus - 1) // 2 or len(counts) != 1 or gpus < 3:
        return False
    each = next(iter(counts))
    most = NVLINKS_PER_GPU.get(options.word("gpu")[0], max(NVLINKS_PER_GPU.values()))
    return each * (gpus - 1) > most


def _generation(nvlinks: Pairs, gpus: int, switched: bool) -> str:
    """Return the oldest GPU with that many NVLinks (V100 instead of the rarer P100)."""
    if not nvlinks:
        return "a100"
    if switched:
        most = next(iter(nvlinks.values()))
    else:
        load = Counter[int]()
        for (a, b), count in nvlinks.items():
            load[a] += count
            load[b] += count
        most = max(load.values())
    return next((g for g in ("v100", "a100", "h100") if most <= NVLINKS_PER_GPU[g]), "h100")


def _generation_notes(
    generation: str, lane: Fraction, has_nvlink: bool, options: MachineSpec
) -> list[str]:
    if options.has("gpu") or options.has("bw"):
        return []
    if not has_nvlink:
        return [f"there is no NVLink; PCIe generation of {generation} is assumed (gpu=)"]
    note = (
        f"the GPU's generation is not in the text; from the NVLink counts {generation} is assumed, "
        f"{float(lane):g}GB/s per NVLink (gpu= or bw= says otherwise)"
    )
    return [note]


def _joined(nvlinks: Pairs, gpus: int) -> bool:
    reached, edge = {0}, [0]
    while edge:
        at = edge.pop()
        for a, b in nvlinks:
            for near, far in ((a, b), (b, a)):
                if near == at and far not in reached:
                    reached.add(far)
                    edge.append(far)
    return len(reached) == gpus


def _over_nvlink(
    matrix: Matrix,
    nvlinks: Pairs,
    switched: bool,
    generation: str,
    where: str,
    options: MachineSpec,
    notes: list[str],
) -> Topology:
    n, lane = matrix.gpus, NVLINK[generation]
    switches: tuple[HostSwitch, ...] = ()
    cables: tuple[Cables, ...] = ()
    if switched:
        # bw= is per NVLink; a switch port has all links of the GPU.
        count = next(iter(nvlinks.values()))
        port = options.bandwidth("bw", lane) * count
        switches = (HostSwitch("nvswitch", tuple(range(n)), port, NVSWITCH_ALPHA),)
        notes.append(f"every pair shows NV{count}: the GPUs are on an NVSwitch, {count} links each")
        options = replace(options, options={k: v for k, v in options.options.items() if k != "bw"})
    else:
        if len(set(nvlinks.values())) == 1 and n > 2 and not options.has("gpu"):
            notes.append("equal NV# counts are read as direct cables; gpu= tells an NVSwitch apart")
        pairs = tuple((a, b, count) for (a, b), count in sorted(nvlinks.items()))
        cables = (Cables(pairs, lane, CABLE_ALPHA),)
    served = _served_gpus(matrix, notes)
    nics = None
    if served:
        nics = Nics(
            tuple(served.values()),
            GENERATION_NIC[generation],
            NET_ALPHA,
            GENERATION_PCIE[generation],
            "star",
            tuple(matrix.own[c] for c in served),
        )
        notes.append(_served_note(matrix, served))
        if options.integer("nodes", 1) == 1:
            notes.append(_alone(matrix, served))
        elif not options.has("nic_bw"):
            notes.append(f"NIC bandwidth assumed {float(nics.bandwidth):g}GB/s (nic_bw=)")
    moves = _moves(n, switches, cables)
    made = build(Host(options.title(), "", n, switches, cables, nics, moves), options)
    made = with_media(made, Medium.NVLINK)
    return replace(made, name=options.title(), notes=tuple(notes))


def _moves(
    n: int, switches: tuple[HostSwitch, ...], cables: tuple[Cables, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return symmetries of the GPUs of one host."""
    if n > GUESSED:
        return ()
    plan_parts = tuple(HostPart(s.name, NodeKind.SWITCH) for s in switches)
    wires = [Cable(a, b, c.bandwidth * m, c.alpha, m) for c in cables for a, b, m in c.pairs]
    wires += [Cable(g, n + i, s.bandwidth, s.alpha) for i, s in enumerate(switches) for g in s.gpus]
    return tuple(
        image[:n] for image in guess(copied(HostPlan(n, plan_parts, tuple(wires)), "host", 1))
    )


def _alone(matrix: Matrix, nics: Iterable[int]) -> str:
    listed = ", ".join(map(matrix.shown, nics))
    return f"NICs of a single host are left out (nodes=2 keeps them): {listed}"


def _served_gpus(matrix: Matrix, notes: list[str]) -> dict[int, tuple[int, ...]]:
    """Return the GPUs of each NIC that is the nearest of some GPU, by its column.

    GPUs with the same nearest NICs are matched one to one if the numbers allow it.
    """
    n, total = matrix.gpus, len(matrix.names)
    best: dict[tuple[int, ...], list[int]] = {}
    for g in range(n):
        if near := _nearest(matrix, g):
            best.setdefault(near, []).append(g)
    served: dict[int, list[int]] = {}
    for nics, gpus in best.items():
        for i, nic in enumerate(nics):
            if len(nics) % len(gpus) == 0:
                served.setdefault(nic, []).append(gpus[i % len(gpus)])
            else:
                served.setdefault(nic, []).extend(gpus)
    idle = [matrix.shown(c) for c in range(n, total) if c not in served]
    if idle:
        notes.append(f"no GPU is nearest to {', '.join(idle)}: left out (storage, management)")
    return {c: tuple(sorted(served[c])) for c in sorted(served)}


def _over_pcie(
    matrix: Matrix,
    nvlinks: Pairs,
    lane: Fraction,
    generation: str,
    where: str,
    options: MachineSpec,
    notes: list[str],
) -> Topology:
    width = options.bandwidth("pcie_bw", GENERATION_PCIE[generation])
    between = options.bandwidth("cpu_bw", CPU_LINK)
    plan = _tree(matrix, width, between)
    cables = [
        Cable(a, b, lane * count, CABLE_ALPHA, count, Medium.NVLINK)
        for (a, b), count in sorted(nvlinks.items())
    ]
    speed = GENERATION_NIC[generation]
    n = matrix.gpus
    plugs = tuple(Plug(c, speed) for c in range(n, len(matrix.names)))
    notes.append(
        "NVLink does not join all GPUs: the PCIe tree follows the classes, "
        f"x16 at {float(width):g}GB/s (pcie_bw=), CPU to CPU at {float(between):g}GB/s (cpu_bw=)"
    )
    nearest = [(c, g) for g in range(n) for c in _nearest(matrix, g)]
    if nearest:
        notes.append(
            _served_note(matrix, {c: [g for k, g in nearest if k == c] for c, _ in sorted(nearest)})
        )
    if plugs and options.integer("nodes", 1) == 1:
        notes.append(_alone(matrix, range(n, len(matrix.names))))
    elif plugs and not options.has("nic_bw"):
        notes.append(f"NIC bandwidth assumed {float(speed):g}GB/s (nic_bw=)")
    whole = replace(plan, cables=(*cables, *plan.cables), plugs=plugs)
    return build_hosts(whole, options.title(), options, notes)


def _tree(matrix: Matrix, width: Fraction, between: Fraction) -> HostPlan:
    """Return the tree of devices: PCIe switches (PIX), bridges (PXB), CPUs of NUMA nodes."""
    total = len(matrix.names)
    parts = [
        HostPart(f"nic.{own_number(own)}", NodeKind.NIC, own) for own in matrix.own[matrix.gpus :]
    ]
    cables: list[Cable] = []
    parents = list(range(total))
    for level, name in (("PIX", "pix"), ("PXB", "pxb")):
        for number, group in enumerate(_groups(matrix, level)):
            tops = sorted({parents[d] for d in group})
            if len(tops) > 1:
                parts.append(HostPart(f"{name}.{number}", NodeKind.SWITCH))
                node = matrix.gpus + len(parts) - 1
                cables += [Cable(top, node, width, PCIE_ALPHA) for top in tops]
                for d in group:
                    parents[d] = node
    cpus: list[int] = []
    for number, group in enumerate(_groups(matrix, "NODE")):
        parts.append(HostPart(f"cpu.{number}", NodeKind.HOST))
        node = matrix.gpus + len(parts) - 1
        tops = sorted({parents[d] for d in group})
        cables += [Cable(top, node, width, PCIE_ALPHA) for top in tops]
        cables += [Cable(cpu, node, between, PCIE_ALPHA) for cpu in cpus]
        cpus.append(node)
    return HostPlan(matrix.gpus, tuple(parts), tuple(cables))


def _groups(matrix: Matrix, level: str) -> list[list[int]]:
    """Return devices grouped by classes up to a level; NVLink pairs use the NUMA column."""
    total = len(matrix.names)
    near = set(PATHS[: PATHS.index(level) + 1])
    group = list(range(total))
    for a in range(total):
        for b in range(a):
            same_numa = (
                level == "NODE"
                and a < matrix.gpus
                and matrix.numa[a] is not None
                and matrix.numa[a] == matrix.numa[b]
                and matrix.cells[a][b].startswith("NV")
            )
            if matrix.cells[a][b] in near or same_numa:
                old, new = group[a], group[b]
                group = [new if x == old else x for x in group]
    members: dict[int, list[int]] = {}
    for device, label in enumerate(group):
        members.setdefault(label, []).append(device)
    return list(members.values())
