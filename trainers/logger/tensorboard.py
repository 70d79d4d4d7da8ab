"""TensorBoard event files in `<run folder>/tensorboard`. Needs the extra agentgym[tensorboard]."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from agentgym.errors import ConfigError
from agentgym.logger import Quiet


class tensorboard(Quiet):
    """Write every metric as a scalar, messages as text, and a text at the step where a stage begins.

    flush_s  seconds between writes to the disk
    """

    def __init__(self, run_dir: Path, *, flush_s: int = 30) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as e:
            raise ConfigError(f"the logger 'tensorboard' needs TensorBoard ({e}): pip install 'agentgym[tensorboard]'") from e
        self._folder, self._flush_s, self._make = Path(run_dir) / "tensorboard", flush_s, SummaryWriter
        self._writer: Any = None  # made late, since a rewind must be known when it is made
        self._purge: int | None = None
        self._stage, self._step = "", 0

    def _out(self) -> Any:
        if self._writer is None:
            self._writer = self._make(str(self._folder), flush_secs=self._flush_s, purge_step=self._purge)
        return self._writer

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Write the metrics at `step`."""
        out, self._step = self._out(), step
        if stage != self._stage:
            out.add_text("stage", stage, step)
            self._stage = stage
        for name, value in metrics.items():
            out.add_scalar(name, value, step)

    def text(self, message: str) -> None:
        """Write a message at the last step, as it stands (not as Markdown)."""
        self._out().add_text("messages", "    " + message.replace("\n", "\n    "), self._step)

    def rewind(self, step: int, evaluated: Collection[str] | None = None) -> None:
        """Have TensorBoard hide what was written after `step`."""
        self.close()
        self._purge = self._step = step + 1

    def close(self) -> None:
        """Write out what is pending."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
