"""Importer of the texts of ``nvidia-smi topo -m`` and ``nvidia-smi nvlink -s``.

NV# between two GPUs is that many NVLinks, either direct or, where every pair shows the same number
and a GPU has fewer links, to an NVSwitch. If NVLink connects all GPUs, PCIe is omitted and each NIC
belongs to the nearest GPUs; otherwise the classes PIX, PXB, PHB, NODE and SYS give the PCIe tree.
The matrix has neither the GPU's generation nor bandwidths: they are those of the GPUs that other
outputs of nvidia-smi in the same text name, or assumed, and notes state it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ..base.lazy_dataclass import Frozen
from ..machines.hosts import Cables, HostSwitch, Nics
from ..machines.nics import own_number
from ..machines.spec import MachineSpec
from ..nouns.parts import Medium
from ..nouns.timing import MachineTiming
from ..nouns.topology import NodeKind, Topology
from .generations import (
    ALPHA_NOTE,
    CABLE_ALPHA,
    CPU_LINK,
    GENERATIONS,
    NO_PEER_ACCESS,
    NVLS,
    NVSWITCH_ALPHA,
    PCIE_ALPHA,
    Generation,
    family_of,
    generation_of,
)
from .host_plan import (
    Cable,
    HostPart,
    HostPlan,
    Plug,
    assumed_nics,
    build_hosts,
    grouped,
    joined_hosts,
    listed_pairs,
    nics_of_gpus,
    with_assumed_nics,
    without_named,
)
from .smi_matrix import (
    CAPABILITIES,
    PATHS,
    Matrix,
    PeerStates,
    SmiDevices,
    matrix_of_status,
    read_devices,
    read_matrix,
)

Pairs = dict[tuple[int, int], int]
"""Number of NVLinks between GPUs a < b."""

Ports = dict[int, int]
"""NVLinks of each GPU to an NVSwitch."""


def read_nvidia_smi(text: str, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the matrix.

    Options: ``gpu=`` (a row of :mod:`.generations`); ``bw=`` per NVLink (with PCIe: ``pcie_bw=``,
    ``cpu_bw=``); ``trays=`` (hosts that share an NVSwitch); ``without=`` NICs; ``nics=`` where the
    text has none; ``nodes=``, ``fabric=``, ``nic_bw=`` and the like.

    Raises:
        BadFile: an invalid text. BadTopology: an asymmetric matrix.
    """
    matrix, notes = _asked(read_matrix(text, where), options)
    return _machine(matrix, read_devices(text), where, options, notes)


def read_nvlink_status(text: str, where: str, options: MachineSpec) -> Topology:
    """Return the topology that ``nvidia-smi nvlink -s`` implies; options as of the matrix.

    Raises:
        BadFile: GPUs that may be cabled in several ways.
    """
    note = (
        "nvidia-smi nvlink -s has neither peers nor NICs: every two GPUs are taken to be joined "
        "alike (nvidia-smi topo -m in the same file tells)"
    )
    return _machine(matrix_of_status(text, where), read_devices(text), where, options, [note])


class _Smi(Frozen):
    """Parsed text: NVLinks of pairs, and the ports of each NVSwitch by GPU.

    ``nvlinks`` lacks pairs of GPUs that are on the same NVSwitch.
    """

    matrix: Matrix
    devices: SmiDevices
    nvlinks: Pairs
    switches: tuple[Ports, ...]
    generation: Generation
    known: bool
    lane: Fraction
    options: MachineSpec
    notes: list[str]

    def nic_width(self, nics: Iterable[int]) -> Fraction:
        """Return GB/s of NICs: the least rate that the text has of them, or the usual one."""
        rates = self.devices.rates
        told = [rates[name] for c in nics for name in self.matrix.own[c] if name in rates]
        return min(told, default=self.generation.nic)

    def gpu_names(self) -> tuple[tuple[str, ...], ...]:
        return tuple(map(self.devices.names_of, self.matrix.names[: self.matrix.gpus]))


def _machine(
    matrix: Matrix, devices: SmiDevices, where: str, options: MachineSpec, notes: list[str]
) -> Topology:
    matrix = _without_idle(matrix, notes)
    nvlinks = _nvlinks(matrix)
    islands = grouped(nvlinks, matrix.gpus)
    named = generation_of([name for g, name in devices.names.items() if f"GPU{g}" in matrix.names])
    asked = GENERATIONS.get(options.choice("gpu", "", GENERATIONS))
    known = asked or named
    switches = _switches(nvlinks, islands, known)
    guess = _Guess.of(nvlinks, switches, matrix.coherent, devices)
    generation = known or guess.generation
    speed = devices.speed if known is None and devices.speed else generation.lane
    lane = options.bandwidth("bw", speed or PROBABLE_LANE)
    if known is None and not options.has("bw"):
        notes = [_generation_note(guess, lane, devices), *notes]
    elif named is not None and asked is None:
        notes = [_named_note(generation, lane, bool(nvlinks)), *notes]
    direct = {
        pair: count for pair, count in nvlinks.items() if not any(pair[0] in s for s in switches)
    }
    notes = [ALPHA_NOTE, *notes]
    smi = _Smi(
        matrix, devices, direct, switches, generation, known is not None, lane, options, notes
    )
    smi.notes.extend(_link_notes(smi))
    made = _over_nvlink(smi) if len(islands) == 1 else _over_pcie(smi)
    certain = known is not None or (nvlinks and not options.has("bw"))
    family = "" if not certain else generation.timed_as
    if asked is None and devices.names:
        family = family_of(devices.names.values())
    return replace(made, timing=MachineTiming(family))


PROBABLE_LANE = Fraction(25)
"""GB/s of an NVLink where the generation named has none: that of most generations."""


def _asked(matrix: Matrix, options: MachineSpec) -> tuple[Matrix, list[str]]:
    """Return the matrix without the NICs of ``without=``, and a note on them."""
    n, notes = matrix.gpus, list[str]()
    shown = [matrix.shown(c) for c in range(n, len(matrix.names))]
    gone = [n + i for i in without_named(options, matrix.own[n:], shown, notes)]
    if matrix.cut:
        notes.append(
            f"the text ends before the rows of its last NICs ({matrix.cut}): the columns of the "
            "other rows serve; two of these NICs are taken to be far apart"
        )
    return matrix.without(gone), list(dict.fromkeys([*notes, *_peer_notes(matrix)]))


_STATES = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
}
"""Words of nvidia-smi for the states of access between GPUs."""


def _peer_notes(matrix: Matrix) -> Iterator[str]:
    """Report which GPUs lack access to each other, as ``nvidia-smi topo -p2p`` lists."""
    every = matrix.gpus * (matrix.gpus - 1)
    for peers in matrix.peers:
        what = " and ".join(CAPABILITIES[letter] for letter in peers.capability)
        title = f"nvidia-smi topo -p2p {peers.capability}".rstrip()
        for state in dict.fromkeys(peers.states.values()):
            pairs = [pair for pair, told in peers.states.items() if told == state]
            listed = listed_pairs([f"GPU{a}-GPU{b}" for a, b in pairs])
            where = "between all GPUs" if len(pairs) == every else f"for {listed}"
            words = f"{state} ({_STATES[state]})" if state in _STATES else state
            yield f"{title}: {words} {where}: {_no_access(what, peers, matrix, pairs)}"


def _no_access(
    what: str, peers: PeerStates, matrix: Matrix, pairs: Sequence[tuple[int, int]]
) -> str:
    cabled = all(matrix.cells[a][b].startswith("NV") for a, b in pairs if max(a, b) < matrix.gpus)
    if peers.capability == "a" or (peers.capability == "n" and not cabled):
        return f"no {what} between them"
    if peers.capability == "p" and cabled:
        return "their way is NVLink"
    return (
        "no peer access, their data goes through the memory of the host, slower than the links "
        f"here; {NO_PEER_ACCESS} on them"
    )


def _served_note(matrix: Matrix, served: Mapping[int, Sequence[int]]) -> str:
    listed = []
    for nic, gpus in served.items():
        names = ", ".join(matrix.names[g] for g in gpus)
        classes = ", ".join(dict.fromkeys(matrix.cells[g][nic] for g in gpus))
        listed.append(f"{matrix.own[nic][0]} {names} ({classes})")
    return f"NICs serve the nearest GPUs: {'; '.join(listed)}"


def _nearest(matrix: Matrix, gpu: int) -> tuple[int, ...]:
    """Return the NICs of the best class of a GPU.

    Of NICs behind the CPU only those on the PCIe switches of other GPUs, if there are any: the
    others of a host with such NICs are for storage and management. So are bonds of two ports
    beside NICs that are none: those of a DPU (GB200's trays).
    """
    row = matrix.cells[gpu]
    classes = {
        c: PATHS.index(row[c]) for c in range(matrix.gpus, len(matrix.names)) if row[c] in PATHS
    }
    near = tuple(c for c, k in classes.items() if k == min(classes.values()))
    near = tuple(c for c in near if not matrix.bonded(c)) or near
    if not near or row[near[0]] in _SWITCHED:
        return near
    beside = tuple(
        c for c in near if any(matrix.cells[g][c] in _SWITCHED for g in range(matrix.gpus))
    )
    return beside or near


_SWITCHED = ("PIX", "PXB")
"""Classes of devices on a PCIe switch."""


def _without_idle(matrix: Matrix, notes: list[str]) -> Matrix:
    """Return the matrix without NICs that are the nearest of no GPU; a note lists them."""
    near = {c for g in range(matrix.gpus) for c in _nearest(matrix, g)}
    idle = [c for c in range(matrix.gpus, len(matrix.names)) if c not in near]
    if not idle:
        return matrix
    whose = (
        ([c for c in idle if not matrix.bonded(c)], "no GPU is nearest to {}"),
        ([c for c in idle if matrix.bonded(c)], "bonds beside other NICs, {}"),
    )
    for nics, words in whose:
        if nics:
            listed = ", ".join(map(matrix.shown, nics))
            notes.append(f"{words.format(listed)}: left out (storage, management)")
    return matrix.without(idle)


def _bonds_note(matrix: Matrix, served: Iterable[int]) -> Iterator[str]:
    """Say which bonds serve GPUs beside NICs that are none: a bond may be a DPU's, for storage."""
    nics = list(served)
    bonds = [c for c in nics if matrix.bonded(c)]
    if 0 < len(bonds) < len(nics):
        names = [matrix.own[c][0] for c in bonds]
        yield (
            f"{', '.join(names)}: a bond of two ports, the nearest of some GPU, counts as its NIC "
            f"(--without {','.join(names)} leaves it out)"
        )


def _nvlinks(matrix: Matrix) -> Pairs:
    return {
        (a, b): count
        for b in range(matrix.gpus)
        for a in range(b)
        if matrix.cells[a][b].startswith("NV") and (count := int(matrix.cells[a][b][2:]))
    }


def _switches(
    nvlinks: Pairs, islands: list[list[int]], known: Generation | None
) -> tuple[Ports, ...]:
    """Return the ports of NVSwitches; nothing where GPUs are cabled directly.

    GPUs are on a switch if all pairs of them are joined, and some GPU shows more links in total
    than it has; without a generation, than any has: four GPUs with NV6 may be GH200 cabled
    directly, or V100 on a switch.
    """
    most = known.links if known else max(one.links for one in GENERATIONS.values())
    load = _load(nvlinks)
    found: list[Ports] = []
    for island in islands:
        inner = {pair: n for pair, n in nvlinks.items() if pair[0] in island}
        whole = len(inner) == len(island) * (len(island) - 1) // 2
        if whole and len(island) > 2 and max(load[g] for g in island) > most:
            found.append({g: max(n for pair, n in inner.items() if g in pair) for g in island})
    return tuple(found)


def _load(nvlinks: Pairs) -> Counter[int]:
    load = Counter[int]()
    for (a, b), count in nvlinks.items():
        load[a] += count
        load[b] += count
    return load


def _guessed(nvlinks: Pairs, switches: tuple[Ports, ...], coherent: bool) -> str:
    """Return the oldest GPU with that many NVLinks (V100 instead of the rarer P100).

    Beside Grace, several GPUs of a host are on an NVSwitch in trays of GB200 only. Four links to
    one other GPU alone are a bridge of two cards: no V100 has that.
    """
    if coherent and switches:
        return "gb200"
    if not nvlinks:
        return "a100"
    load = _load(nvlinks)
    if len(nvlinks) * 2 == len(load) and set(nvlinks.values()) == {GENERATIONS["rtx"].links}:
        return "rtx"
    if not switches:
        most = max(load.values())
    else:
        most = max(max(ports.values()) for ports in switches)
        if most == GENERATIONS["a800"].links:
            return "a800"
    return next((g for g in ("v100", "a100", "h100") if most <= GENERATIONS[g].links), "h100")


class _Guess(Frozen):
    """The likeliest generation: its evidence (nothing without NVLink), and which others fit."""

    generation: Generation
    told: tuple[str, ...]
    others: tuple[str, ...]

    @staticmethod
    def of(
        nvlinks: Pairs, switches: tuple[Ports, ...], coherent: bool, devices: SmiDevices
    ) -> _Guess:
        """Return the guess by NVLink counts, and by other facts in the text where several fit."""
        first = GENERATIONS[_guessed(nvlinks, switches, coherent)]
        if not nvlinks:
            return _Guess(first, (), ())
        told = ["the NVLink counts", *["GPUs that are NUMA nodes"] * coherent]
        fit = [one for one in _fitting(nvlinks, switches, coherent) if one.card or not first.card]
        for words, fits in _evidence(devices):
            left = [one for one in fit if fits(one)]
            if left and len(left) < len(fit):
                fit = left
                told.append(words)
        # Words that name another generation than those that fit are about something else.
        chosen = first if first in fit or not fit else fit[0]
        others = tuple(one.name for one in fit if one is not chosen)
        return _Guess(chosen, tuple(told), others)


def _fitting(nvlinks: Pairs, switches: tuple[Ports, ...], coherent: bool) -> list[Generation]:
    """Return the generations of that many NVLinks; cards have them to one other GPU only."""
    load = _load(nvlinks)
    most = max(max(ports.values()) for ports in switches) if switches else max(load.values())
    bridges = not switches and len(nvlinks) * 2 == len(load)
    return [
        one
        for one in dict.fromkeys(GENERATIONS.values())
        if one.medium is Medium.NVLINK
        and one.links == most
        and (bridges or not one.card)
        and one.beside_grace is coherent
    ]


def _evidence(devices: SmiDevices) -> Iterator[tuple[str, Callable[[Generation], bool]]]:
    """Yield facts of a text beside the counts, in words, with the test of a generation."""
    if devices.words:
        listed = ", ".join(devices.words)
        yield f"the word {listed}", lambda one: one.name.partition("-")[0] in devices.words
    if devices.speed:
        rate = devices.speed
        yield f"{float(rate):g}GB/s of a link", lambda one: abs(rate - one.lane) < one.lane / 10
    if devices.memory:
        yield (
            f"{devices.memory:.0f}GiB of memory",
            lambda one: any(abs(devices.memory / x - 1) < 0.02 for x in one.memory),
        )
    if devices.driver:
        yield (
            f"driver {devices.driver}",
            lambda one: one.driver <= devices.driver,
        )
    if devices.rates:
        fastest = max(devices.rates.values())
        yield f"NICs of {float(fastest):g}GB/s", lambda one: one.nic == fastest


def _generation_note(guess: _Guess, lane: Fraction, devices: SmiDevices) -> str:
    generation = guess.generation
    if not guess.told:
        return (
            f"without NVLink the PCIe generation of {generation.name} is assumed "
            f"({generation.source}; gpu= says otherwise)"
        )
    fit = ", ".join(f"gpu={name}" for name in guess.others)
    more = f"{fit} would fit too" if fit else ""
    if devices.speed:
        listed = f"; {more}" if more else ""
        return f"{float(lane):g}GB/s per NVLink, as nvidia-smi nvlink -s says (gpu= or bw={listed})"
    return (
        f"the GPU's generation is not in the text; from {' and '.join(guess.told)} "
        f"{generation.name} is assumed, {float(lane):g}GB/s per NVLink ({generation.source}; "
        f"gpu= or bw= says otherwise{'; ' * bool(more)}{more})"
    )


def _named_note(generation: Generation, lane: Fraction, has_nvlink: bool) -> str:
    links = f"{float(lane):g}GB/s per NVLink, " if has_nvlink else ""
    return (
        f"the GPUs are {generation.name} by their names: {links}"
        f"x16 PCIe {float(generation.pcie):g}GB/s ({generation.source})"
    )


def _link_notes(smi: _Smi) -> Iterator[str]:
    """Say which GPUs have fewer NVLinks than the others."""
    names, most = smi.matrix.names, max((max(s.values()) for s in smi.switches), default=0)
    few = [(g, n) for ports in smi.switches for g, n in ports.items() if n < most]
    if few:
        listed = ", ".join(f"{names[g]} {n}" for g, n in few)
        yield f"fewer NVLinks to the NVSwitch than the {most} of the others: {listed}"
    joined = {g for pair in smi.nvlinks for g in pair}.union(*smi.switches)
    alone = [names[g] for g in range(smi.matrix.gpus) if g not in joined]
    if joined and alone:
        yield f"GPUs without NVLink, reached over PCIe only: {', '.join(alone)}"
    elif smi.known and alone[1:] and smi.generation.links and not smi.generation.card:
        yield (
            f"{smi.generation.name} usually have NVLink, and the text shows none: nvidia-smi "
            "topo -mp leaves it out, topo -m does not"
        )
    if smi.devices.down:
        listed = ", ".join(f"GPU{g} {n}" for g, n in sorted(smi.devices.down.items()))
        yield f"inactive NVLinks are left out: {listed}"


def _over_nvlink(smi: _Smi) -> Topology:
    n, options, notes = smi.matrix.gpus, smi.options, smi.notes
    switches: tuple[HostSwitch, ...] = ()
    if smi.switches:
        (ports,) = smi.switches
        count = max(ports.values())
        fewer = tuple((g, smi.lane * k) for g, k in ports.items() if k < count)
        trays = _trays(smi)
        able = NVLS if smi.generation.sums_in_switch else frozenset()
        # A port has all links of the GPU.
        one = HostSwitch("nvswitch", tuple(range(n)), smi.lane * count, NVSWITCH_ALPHA, able)
        switches = (replace(one, ports=fewer, hosts=trays),)
        most = "every pair shows" if not fewer else "pairs show up to"
        notes.append(f"{most} NV{count}: the GPUs are on an NVSwitch, {count} links each")
    elif len(set(smi.nvlinks.values())) == 1 and n > 2 and not options.has("gpu"):
        notes.append("equal NV# counts are read as direct cables; gpu= tells an NVSwitch apart")
    pairs = tuple((a, b, count) for (a, b), count in sorted(smi.nvlinks.items()))
    cables, nics = Cables(pairs, smi.lane, CABLE_ALPHA), _nics(smi)
    names = smi.gpu_names()
    return joined_hosts(options, notes, cables, switches, nics, names, Medium.NVLINK)


def _trays(smi: _Smi) -> int:
    """Return how many hosts share an NVSwitch; a note reports several."""
    trays = smi.options.integer("trays", max(1, smi.generation.rack // smi.matrix.gpus))
    if trays > 1 and smi.options.integer("nodes", 1) > 1:
        smi.notes.append(
            f"hosts of {smi.generation.name} are trays of a rack: up to {trays} share an NVSwitch "
            "(trays=1: none does)"
        )
    return trays


def _nics(smi: _Smi) -> Nics | None:
    """Return the NICs of the text, or for several hosts assumed ones where it has none."""
    matrix, options, kind = smi.matrix, smi.options, smi.generation
    served = _served_gpus(matrix)
    alone = options.integer("nodes", 1) == 1
    if not served:
        return None if alone else assumed_nics(matrix.gpus, kind, options, smi.notes)
    attach, own = tuple(served.values()), tuple(matrix.own[c] for c in served)
    smi.notes.append(_served_note(matrix, served))
    smi.notes.extend(_bonds_note(matrix, served))
    width = smi.nic_width(served)
    if alone:
        smi.notes.append(_alone(matrix, served))
    elif not options.has("nic_bw"):
        smi.notes.append(_width_note(smi, width))
    options.bandwidth("pcie_bw", kind.pcie)  # it is known, too, where no NIC is used
    kind = replace(kind, nic=width)
    return nics_of_gpus(attach, kind, options, [] if alone else smi.notes, own)


def _width_note(smi: _Smi, width: Fraction) -> str:
    if not smi.devices.rates.keys() & {name for own in smi.matrix.own for name in own}:
        return f"NIC bandwidth assumed {float(width):g}GB/s (nic_bw=)"
    return f"NIC bandwidth {float(width):g}GB/s: the least rate of a NIC in the text (nic_bw=)"


def _alone(matrix: Matrix, nics: Iterable[int]) -> str:
    listed = ", ".join(map(matrix.shown, nics))
    return f"NICs of a single host are left out (nodes=2 keeps them): {listed}"


def _served_gpus(matrix: Matrix) -> dict[int, tuple[int, ...]]:
    """Return the GPUs of each NIC that is the nearest of some GPU, by its column.

    GPUs with the same nearest NICs are matched one to one if the numbers allow it.
    """
    n = matrix.gpus
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
    return {c: tuple(sorted(served[c])) for c in sorted(served)}


def _over_pcie(smi: _Smi) -> Topology:
    matrix, options, notes = smi.matrix, smi.options, smi.notes
    width = options.bandwidth("pcie_bw", smi.generation.pcie)
    between = options.bandwidth("cpu_bw", CPU_LINK)
    plan = _tree(matrix, width, between)
    cables = [
        Cable(a, b, smi.lane * count, CABLE_ALPHA, count, Medium.NVLINK)
        for (a, b), count in sorted(smi.nvlinks.items())
    ]
    switches = tuple(HostPart(f"nvswitch.{i}", NodeKind.SWITCH) for i in range(len(smi.switches)))
    first = plan.gpus + len(plan.parts)
    for node, ports in enumerate(smi.switches, first):
        cables += [
            Cable(g, node, smi.lane * k, NVSWITCH_ALPHA, k, Medium.NVLINK) for g, k in ports.items()
        ]
        listed = ", ".join(matrix.names[g] for g in ports)
        notes.append(f"on an NVSwitch, up to {max(ports.values())} links each: {listed}")
    n = matrix.gpus
    speed = smi.nic_width(range(n, len(matrix.names)))
    plugs = tuple(Plug(c, speed) for c in range(n, len(matrix.names)))
    notes.append(
        "NVLink does not join all GPUs: the PCIe tree follows the classes, "
        f"x16 at {float(width):g}GB/s (pcie_bw=), CPU to CPU at {float(between):g}GB/s (cpu_bw=)"
    )
    far = [(a, b) for b in range(n) for a in range(b) if matrix.cells[a][b] == "SYS"]
    if any(_same_numa(matrix, a, b) for a, b in far):
        notes.append("GPUs of one NUMA node are on one CPU, even where SYS is between them")
    nearest = [(c, g) for g in range(n) for c in _nearest(matrix, g)]
    if nearest:
        served = {c: [g for k, g in nearest if k == c] for c, _ in sorted(nearest)}
        notes.append(_served_note(matrix, served))
    if plugs and options.integer("nodes", 1) == 1:
        notes.append(_alone(matrix, range(n, len(matrix.names))))
    elif plugs and not options.has("nic_bw"):
        notes.append(_width_note(smi, speed))
        near = {g for c, g in nearest if matrix.cells[g][c] in _SWITCHED}
        if speed > between and any(a in near and b in near for a, b in far):
            notes.append(
                "between GPUs on different CPUs NCCL itself takes NICs here (PXB or nearer, faster "
                "than CPU to CPU) unless NCCL_NET_DISABLE_INTRA=1: loopback=on counts them"
            )
    names = smi.gpu_names()
    parts = (*plan.parts, *switches)
    whole = HostPlan(n, parts, (*cables, *plan.cables), plugs, names)
    if not plugs and options.integer("nodes", 1) > 1:
        whole = with_assumed_nics(whole, smi.generation, options, notes)
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
    """Return devices grouped by classes up to a level, GPUs at last also by their NUMA column.

    Under NVLink the class is not seen, and in virtual machines it is SYS between all GPUs.
    """
    near = set(PATHS[: PATHS.index(level) + 1])
    pairs = (
        (a, b)
        for a in range(len(matrix.names))
        for b in range(a)
        if matrix.cells[a][b] in near or (level == "NODE" and _same_numa(matrix, a, b))
    )
    return grouped(pairs, len(matrix.names))


def _same_numa(matrix: Matrix, a: int, b: int) -> bool:
    """Return True if two devices are GPUs of the same NUMA node by the last columns.

    Columns that part GPUs which are nearer than SYS are believed only under NVLink.
    """
    if max(a, b) >= matrix.gpus or matrix.numa[a] is None or matrix.numa[a] != matrix.numa[b]:
        return False
    return matrix.cells[a][b].startswith("NV") or not any(
        matrix.cells[i][j] in PATHS[:-1] and matrix.numa[i] != matrix.numa[j]
        for j in range(matrix.gpus)
        for i in range(j)
    )
