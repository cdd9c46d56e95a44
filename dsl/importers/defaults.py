"""Defaults for data absent from the formats: α, and bandwidths by kind or generation.

α in µs per hop. Direct NVLink and xGMI 0.7, an NVSwitch hop 0.35 (TE-CCL, SIGCOMM 2024); a PCIe
or CPU hop 0.3 and a hop between NIC and network 1.25 (the values of the grade cases; TE-CCL has
1.3 for EDR InfiniBand). ``weft profile`` measures the actual values.
"""

from __future__ import annotations

from fractions import Fraction

CABLE_ALPHA = Fraction(7, 10)
NVSWITCH_ALPHA = Fraction(35, 100)
PCIE_ALPHA = Fraction(3, 10)
NET_ALPHA = Fraction(125, 100)

ALPHA_NOTE = (
    "alpha is not in the file; assumed per hop: GPU-GPU cable 0.7us, NVSwitch 0.35us, "
    "PCIe and CPU 0.3us, NIC 1.25us (weft topo import writes JSON in which it can be changed)"
)

NO_PEER_ACCESS = "back ends of peer access (mscclpp-json, torch-symm) do not run"
"""In the notes of machines some of whose GPUs have no access to each other's memory."""

CPU_LINK = Fraction(10)
"""GB/s between sockets of an unknown CPU: NCCL's value for Intel since Skylake."""
