"""Hardened XML parser to a tree with line numbers: no entities, no DTD, bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from ..base.errors import BadFile
from ..base.lazy_dataclass import dataclass

MAX_DEPTH = 64
MAX_ELEMENTS = 100_000


@dataclass(slots=True)
class Element:
    """An element: tag, attributes, line, children; text is dropped."""

    tag: str
    attributes: dict[str, str]
    where: str
    children: list[Element] = field(default_factory=list)

    def find(self, *tags: str) -> Iterator[Element]:
        """Yield the children with some tags."""
        return (child for child in self.children if child.tag in tags)

    def get(self, name: str, default: str = "") -> str:
        """Return an attribute, or the default."""
        return self.attributes.get(name, default)


def parse_xml(text: str, where: str) -> Element:
    """Parse XML and return the root element.

    Raises:
        BadFile: not well-formed, with line and column; entities or a DTD; nested too deeply, or
            too many elements.
    """
    builder = _ElementTarget(where)
    parser = DefusedXMLParser(target=builder, forbid_dtd=True)
    builder.expat = parser.parser
    try:
        parser.feed(text)
        parser.close()
    except ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise BadFile(f"not XML: {reason}", where=f"{where}:{line}:{column + 1}") from None
    except DefusedXmlException:
        raise BadFile(
            "the XML declares entities or a document type, which are not read",
            where=f"{where}:{builder.line()}",
        ) from None
    except ValueError as error:
        raise BadFile(f"not XML: {error}", where=where) from None
    if builder.root is None:
        raise BadFile("expected an XML element, got none", where=where)
    return builder.root


class _ElementTarget:
    """Target of the parser: builds elements, limiting their number and depth."""

    def __init__(self, where: str) -> None:
        self.root: Element | None = None
        self.expat: Any = None
        self._where = where
        self._open: list[Element] = []
        self._count = 0

    def line(self) -> int:
        return int(self.expat.CurrentLineNumber)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        where = f"{self._where}:{self.line()}"
        if len(self._open) == MAX_DEPTH:
            raise BadFile(f"nested deeper than {MAX_DEPTH} elements", where=where)
        if self._count > MAX_ELEMENTS:
            raise BadFile(f"more than {MAX_ELEMENTS} elements", where=where)
        element = Element(tag, dict(attributes), where)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, tag: str) -> None:
        self._open.pop()

    def data(self, text: str) -> None:
        """Ignore text between elements."""

    def close(self) -> None:
        """End the document."""
