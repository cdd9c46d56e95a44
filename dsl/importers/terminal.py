"""What terminals leave in copies of their text."""

from __future__ import annotations

import re

ESCAPES = re.compile(r"\x1b?\[[0-9;]*m|\x1b\[[0-9;?]*[A-Za-z]")
"""Colours and movements of the cursor; of colours also those whose first byte was lost."""
