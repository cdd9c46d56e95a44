"""Edits of MSCCL XML by place: the attributes of a rank, a thread block, a step."""

import copy
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

Edit = Callable[[str], str]


class File:
    """A file as a tree that is written back in the canonical form."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)

    def gpu(self, rank: int) -> ElementTree.Element:
        return self.root[rank]

    def tb(self, rank: int, tb: int) -> ElementTree.Element:
        return self.root[rank][tb]

    def step(self, rank: int, tb: int, step: int) -> ElementTree.Element:
        return self.root[rank][tb][step]

    def text(self) -> str:
        lines = [f"<algo{_attributes(self.root)}>"]
        for gpu in self.root:
            lines.append(f"  <gpu{_attributes(gpu)}>")
            for tb in gpu:
                lines.append(f"    <tb{_attributes(tb)}>")
                lines += [f"      <step{_attributes(step)}/>" for step in tb]
                lines.append("    </tb>")
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>", ""])


def _attributes(element: ElementTree.Element) -> str:
    return "".join(f' {key}="{value}"' for key, value in element.attrib.items())


def _change(element: ElementTree.Element, changes: dict[str, object]) -> None:
    for key, value in changes.items():
        if value is None:
            del element.attrib[key]
        else:
            element.set(key, str(value))


def head(**changes: object) -> Edit:
    """Change (None: drop) attributes of ``<algo>``."""
    return _edit(lambda f: f.root, changes)


def gpu(rank: int, **changes: object) -> Edit:
    return _edit(lambda f: f.gpu(rank), changes)


def tb(rank: int, at: int, **changes: object) -> Edit:
    return _edit(lambda f: f.tb(rank, at), changes)


def step(rank: int, at: int, index: int, **changes: object) -> Edit:
    return _edit(lambda f: f.step(rank, at, index), changes)


def _edit(find: Callable[[File], ElementTree.Element], changes: dict[str, object]) -> Edit:
    def edit(text: str) -> str:
        file = File(text)
        _change(find(file), changes)
        return file.text()

    return edit


def drop_step(rank: int, at: int, index: int) -> Edit:
    """Without a step; those after it are numbered anew, and waits for them as well."""

    def edit(text: str) -> str:
        file = File(text)
        block = file.tb(rank, at)
        block.remove(block[index])
        _renumber(file, rank, at, index, -1)
        return file.text()

    return edit


def add_step(rank: int, at: int, index: int, kind: str, **changes: object) -> Edit:
    """With a step before step ``index``; those after it are numbered anew, and waits for them."""

    def edit(text: str) -> str:
        file = File(text)
        block = file.tb(rank, at)
        plain = {
            "s": "0",
            "type": kind,
            "srcbuf": "i",
            "srcoff": "0",
            "dstbuf": "o",
            "dstoff": "0",
            "cnt": "1",
            "depid": "-1",
            "deps": "-1",
            "hasdep": "0",
        }
        new = ElementTree.Element("step", plain)
        _change(new, changes)
        _renumber(file, rank, at, index, 1)
        block.insert(index, new)
        for number, each in enumerate(block):
            each.set("s", str(number))
        return file.text()

    return edit


def _renumber(file: File, rank: int, at: int, index: int, by: int) -> None:
    for number, each in enumerate(file.tb(rank, at)):
        each.set("s", str(number))
    for block in file.gpu(rank):
        for each in block:
            if each.get("depid") == str(at) and int(each.get("deps", "-1")) >= index:
                each.set("deps", str(int(each.get("deps", "-1")) + by))


def drop_tb(rank: int, at: int) -> Edit:
    """Without a thread block; nothing is renumbered."""

    def edit(text: str) -> str:
        file = File(text)
        file.gpu(rank).remove(file.tb(rank, at))
        return file.text()

    return edit


def copy_tb(rank: int, at: int, **changes: object) -> Edit:
    """With a copy of a thread block at the end of the rank, changed."""

    def edit(text: str) -> str:
        file = File(text)
        again = copy.deepcopy(file.tb(rank, at))
        _change(again, {"id": len(file.gpu(rank)), **changes})
        file.gpu(rank).append(again)
        return file.text()

    return edit


def both(*edits: Edit) -> Edit:
    """One edit after another."""

    def edit(text: str) -> str:
        for each in edits:
            text = each(text)
        return text

    return edit


def sub(old: str, new: str, times: int = 1) -> Edit:
    """Plain replacement in the text."""

    def edit(text: str) -> str:
        assert old in text, old
        return text.replace(old, new, times)

    return edit
