"""Trackio: a local tracker with a dashboard (`trackio show`). Needs the extra agentgym[trackio]."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentgym.errors import ConfigError
from agentgym.logger import Quiet


class trackio(Quiet):
    """Send every metric to a Trackio project on this machine. A resumed run goes on in its own Trackio run.

    project   name of the Trackio project
    run_name  name of the run there; default: the run folder's name
    """

    def __init__(self, run_dir: Path, *, project: str = "agentgym", run_name: str = "") -> None:
        try:
            import trackio as library
        except ImportError as e:
            raise ConfigError(f"the logger 'trackio' needs Trackio ({e}): pip install 'agentgym[trackio]'") from e
        # Trackio knows runs by their names. The mark in the folder tells a resumed run from another folder of the same name.
        mark = Path(run_dir) / "trackio_run"
        self._run = library.init(
            project=project,
            name=run_name or Path(run_dir).resolve().name,
            resume="allow" if mark.exists() else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{project}/{self._run.name}\n", "utf-8")
        self._open = True

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Send the metrics, with the stage's name."""
        self._run.log({**metrics, "stage": stage}, step=step)

    def close(self) -> None:
        """Send what is pending."""
        if self._open:
            self._open = False
            self._run.finish()
