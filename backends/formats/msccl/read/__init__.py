"""Readers of artefacts that other programs write: MSCCL algorithm XML."""

from .collective import collective_of, fit
from .model import XmlAlgo, XmlBlock, XmlRank, XmlRemark, XmlTransfer
from .msccl_xml import read_msccl_xml
from .program import program_of

__all__ = [
    "XmlAlgo",
    "XmlBlock",
    "XmlRank",
    "XmlRemark",
    "XmlTransfer",
    "collective_of",
    "fit",
    "program_of",
    "read_msccl_xml",
]
