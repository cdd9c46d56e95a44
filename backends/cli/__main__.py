"""``python -m weft.backends.cli`` for where no script is installed."""

from __future__ import annotations

import sys

from .frame.start import main

sys.exit(main())
