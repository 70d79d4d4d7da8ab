"""Weights & Biases. Needs the extra agentgym[wandb], and an account unless `mode` is offline."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from agentgym.errors import ConfigError
from agentgym.logger import Quiet


class wandb(Quiet):
    """Send every metric to a W&B project. A resumed run goes on in its own W&B run.

    project   name of the W&B project
    run_name  name of the run there; default: the run folder's name
    mode      "offline" keeps everything in the run folder, for `wandb sync` later
    """

    def __init__(self, run_dir: Path, *, project: str = "agentgym", run_name: str = "", mode: Literal["online", "offline"] = "online") -> None:
        try:
            import wandb as library
        except ImportError as e:
            raise ConfigError(f"the logger 'wandb' needs the package wandb ({e}): pip install 'agentgym[wandb]'") from e
        folder = Path(run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / "wandb_run"
        if not mark.exists():
            mark.write_text(secrets.token_hex(4), "utf-8")
        self._run = library.init(
            project=project,
            name=run_name or folder.resolve().name,
            dir=str(folder),
            mode=mode,
            id=mark.read_text("utf-8").strip(),
            resume="allow",
        )
        # W&B's own step must not fall, which it would after a resume; so the step is a metric and the x axis of all others.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self._open = True

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Send the metrics, with the step and the stage's name."""
        self._run.log({**metrics, "step": step, "stage": stage})

    def close(self) -> None:
        """Send what is pending."""
        if self._open:
            self._open = False
            self._run.finish()
