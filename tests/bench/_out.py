"""How every benchmark ends: its figures as JSON, on the terminal and in a file where one is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(result: dict[str, Any], out: Path | None) -> None:
    """Print the figures, and write them to `out`."""
    text = json.dumps(result, indent=2)
    print(text)
    if out:
        out.write_text(text + "\n", encoding="utf-8")
