"""How much depends on a message: the longest chain of messages that starts with it.

MSCCLang's priority (the longest distance to the end), on messages: each brings what later ones send
on, or add to. A message that nothing depends on has urgency 0.
"""

from __future__ import annotations

import numpy as np

from .flow import Column, Messages
from .forwarding import forwarded


def urgency(m: Messages) -> Column:
    """The number of hops that must still follow each message. Linear in messages."""
    after = np.zeros(len(m), np.int64)
    incoming, outgoing = forwarded(m)
    order = np.argsort(-m.step[outgoing], kind="stable")
    incoming, outgoing = incoming[order], outgoing[order]
    for rows in np.split(np.arange(len(order)), np.flatnonzero(np.diff(m.step[outgoing])) + 1):
        np.maximum.at(after, incoming[rows], after[outgoing[rows]] + 1)
    return after
