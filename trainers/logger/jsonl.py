"""metrics.jsonl in the run folder: one JSON object per row, readable by everything."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from agentgym.logger import Quiet
from agentgym.store import cut_torn_line, dump_line, read_lines, write_atomic


class jsonl(Quiet):
    """Append rows `{"stage", "step", "time", metric: value, …}` to metrics.jsonl, each on the disk's way at once.

    `time` is in seconds since 1970. A number that is not finite is null: JSON has no other word for it. Messages go to messages.log.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder = Path(run_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.path = self._folder / "metrics.jsonl"
        cut_torn_line(self.path)

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Append a row."""
        numbers = {k: float(v) if math.isfinite(v) else None for k, v in metrics.items()}
        row = {"stage": stage, "step": step, "time": round(time.time(), 3), **numbers}
        # Opened anew each time: rows are seconds apart, and a file that was moved or rewound is no special case.
        with open(self.path, "ab") as f:
            f.write(dump_line(row, f"{self.path}, step {step}"))

    def text(self, message: str) -> None:
        """Append a message, with its time."""
        with open(self._folder / "messages.log", "a", encoding="utf-8", errors="backslashreplace") as f:
            f.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")

    def rewind(self, step: int, evaluated: Collection[str] | None = None) -> None:
        """Drop the rows after `step`, and at `step` those of evaluations that are not among `evaluated`: the resumed run writes them again."""
        if not self.path.exists():
            return

        def again(row: dict[str, Any]) -> bool:
            late = row["step"] == step and evaluated is not None and row["stage"] not in evaluated
            return row["step"] > step or (late and any(k.startswith("eval/") for k in row))

        kept = [r for r in read_lines(self.path) if not again(r)]
        write_atomic(self.path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept))
