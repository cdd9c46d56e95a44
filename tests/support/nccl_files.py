"""Topology XML as RCCL dumps it, written from the format for servers of known cables.

A server is a list of CPUs, each with GPUs and NICs behind PCI bridges; cables between GPUs are
listed at both ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

GEN3, GEN4, GEN5 = "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe"

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Card:
    """A NIC: its Mbit/s and, where a GPU shares its bridge, that GPU."""

    speed: int
    beside: int | None = None
    attributes: str = ""


@dataclass(frozen=True)
class Server:
    """GPUs and NICs of every CPU; cables between GPUs by their number of links."""

    gcn: str
    cpus: tuple[tuple[tuple[int, ...], tuple[Card, ...]], ...]
    cables: Mapping[int, Pairs]
    pcie: str = GEN4
    bridges: int = 1
    intel: bool = False

    @property
    def ranks(self) -> int:
        return sum(len(gpus) for gpus, _ in self.cpus)

    @property
    def cards(self) -> list[Card]:
        return [card for _, cards in self.cpus for card in cards]

    def links(self, gpu: int) -> Iterator[tuple[int, int]]:
        """Peers of a GPU, and the links to each."""
        for lanes, pairs in self.cables.items():
            for pair in pairs:
                if gpu in pair:
                    yield sum(pair) - gpu, lanes


def xml(server: Server) -> str:
    """The file."""
    vendor = 'vendor="GenuineIntel" familyid="6" modelid="143"'
    if not server.intel:
        vendor = 'vendor="AuthenticAMD" familyid="143" modelid="49"'
    lines = ['<system version="2">']
    cards = 0
    for number, (gpus, nics) in enumerate(server.cpus):
        lines.append(f'  <cpu numaid="{number}" affinity="000000ff" arch="x86_64" {vendor}>')
        for gpu in gpus:
            inside = [gpu_of(server, gpu)]
            for card in nics:
                if card.beside == gpu:
                    inside.append(card_of(server, card, cards))
                    cards += 1
            lines += bridged(server, f"{0x40 + gpu:02x}", inside)
        for card in nics:
            if card.beside is None:
                lines += ["    " + line for line in card_of(server, card, cards)]
                cards += 1
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def pci(bus: str, kind: str, speed: str, inside: Iterable[str]) -> list[str]:
    head = f'<pci busid="0000:{bus}.0" class="{kind}" link_speed="{speed}" link_width="16">'
    return [head, *("  " + line for line in inside), "</pci>"]


def bridged(server: Server, bus: str, devices: list[list[str]]) -> list[str]:
    """Devices below a chain of bridges."""
    lines = [line for device in devices for line in device]
    for level in reversed(range(server.bridges)):
        lines = pci(f"{bus}:{level + 1:02x}", "0x060400", server.pcie, lines)
    return ["    " + line for line in lines]


def bus_of(gpu: int) -> str:
    return f"{0x80 + gpu:02x}:00"


def gpu_of(server: Server, gpu: int) -> list[str]:
    kind = "0x120000" if server.gcn == "gfx942" else "0x038000"
    links = [
        f'  <xgmi target="0000:{bus_of(peer)}.0" count="{lanes}" tclass="{kind}"/>'
        for peer, lanes in server.links(gpu)
    ]
    head = f'<gpu dev="{gpu}" sm="104" gcn="{server.gcn}" arch="38911" rank="{gpu}" gdr="1">'
    return pci(bus_of(gpu), kind, server.pcie, [head, *links, "</gpu>"])


def card_of(server: Server, card: Card, number: int) -> list[str]:
    net = (
        f'  <net name="card{number}" dev="{number}" speed="{card.speed}" port="1" '
        f'guid="0x{number + 1:x}" maxconn="131072" gdr="1"{card.attributes}/>'
    )
    return pci(f"{0xC0 + number:02x}:00", "0x020700", server.pcie, ["<nic>", net, "</nic>"])


def full(gpus: Iterable[int]) -> Pairs:
    return tuple(combinations(gpus, 2))


def ring(first: int, size: int) -> Pairs:
    return tuple((first + i, first + (i + 1) % size) for i in range(size))


def quads(count: int) -> Pairs:
    return tuple(p for q in range(count) for p in full(range(4 * q, 4 * q + 4)))


HDR = Card(200_000)

SERVERS = {
    "ring of four": Server(
        *("906", (((0, 1, 2, 3), (Card(100_000),)),), {1: ring(0, 4)}),
        pcie=GEN3,
        bridges=2,
        intel=True,
    ),
    "two rings": Server(
        *("906", (((0, 1), ()), ((2, 3), (HDR,)), ((4, 5), ()), ((6, 7), ()))),
        {1: (*ring(0, 4), *ring(4, 4))},
    ),
    "two quads": Server(
        "908", (((0,), ()), ((1, 2, 3), (HDR,)), ((4, 5, 6, 7), ())), {1: quads(2)}
    ),
    "four quads": Server(
        "908",
        tuple(
            (tuple(range(g, g + 8)), tuple(Card(200_000, beside=i) for i in range(g, g + 8)))
            for g in (0, 8)
        ),
        {1: quads(4)},
        bridges=3,
    ),
    "sums in the network": Server(
        *("908", (((0, 1, 2, 3), (Card(200_000, attributes=' coll="1"'),)), ((4, 5, 6, 7), ()))),
        {1: quads(2)},
    ),
    "cocktail party": Server(
        *("908", (((0, 1, 2, 3), (HDR, HDR)), ((4, 5, 6, 7), (HDR, HDR)))),
        {1: tuple(p for p in full(range(8)) if p not in {(0, 5), (1, 4), (2, 7), (3, 6)})},
    ),
    "dies of four cards": Server(
        *("910", (((0, 1, 2, 3), (HDR, HDR)), ((4, 5, 6, 7), (HDR, HDR)))),
        {
            4: ((0, 1), (2, 3), (4, 5), (6, 7)),
            2: ((0, 4), (2, 6)),
            1: ((0, 6), (1, 3), (1, 7), (2, 4), (3, 5), (5, 7)),
        },
        bridges=3,
    ),
    "three peers each": Server(
        *("910", (((0, 1, 2, 3, 4, 5, 6, 7), (Card(1_000),)),)),
        {1: (*ring(0, 4), *ring(4, 4), (0, 4), (1, 5), (2, 6), (3, 7))},
        bridges=0,
    ),
    "everyone to everyone": Server(
        "gfx942",
        tuple(
            (tuple(range(g, g + 4)), tuple(Card(400_000, beside=i) for i in range(g, g + 4)))
            for g in (0, 4)
        ),
        {1: full(range(8))},
        pcie=GEN5,
        bridges=2,
        intel=True,
    ),
    "no cables": Server(
        *("906", (((0, 1, 2, 3), (Card(100_000),)), ((4, 5, 6, 7), ())), {}), pcie=GEN3, intel=True
    ),
}
