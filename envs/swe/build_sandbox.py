"""Run a package's tests in a sandbox, as grading does: to see which tests of a package need more than it gives."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection
from pathlib import Path

from .build_run import HERE, PLUGIN, Outcome, RunTests, outcome, probed
from .packages import Package
from .sandbox import TREE, Backend, backend

_PLACE = "/tmp/probe"  # in the sandbox
_MOST = 1 << 28  # bytes of a report


def runner(sandbox: str) -> RunTests | None:
    """Return what runs tests in sandboxes of a backend by name; None for "none": plain processes. Raises ConfigError, SandboxMissing."""
    return None if sandbox == "none" else SandboxRunner(backend(sandbox))  # type: ignore[arg-type]


class SandboxRunner:
    """Runs tests in a sandbox of its own for each run; see build_run.RunTests."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __call__(
        self, package: Package, tree: Path, *, timeout: float, only: Collection[str] = (), trace: bool = False, most: int = 0, seed: int = 0
    ) -> Outcome:
        """See RunTests. Raises EnvError where the sandbox fails."""
        env = {
            "PYTHONPATH": f"{TREE}/{package.path}:{_PLACE}",
            "PYTHONHASHSEED": str(seed),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TZ": "UTC",
            "SWE_PROBE_OUT": f"{_PLACE}/report.jsonl",
            "SWE_PROBE_CPU": str(int(timeout) + 1),
        }
        box = self.backend.open(tree)
        try:
            box.run(f"mkdir -p {_PLACE}")
            for name in PLUGIN:
                box.write(f"{_PLACE}/{name}.py", (HERE / f"{name}.py").read_bytes())
            if only:
                box.write(f"{_PLACE}/only.jsonl", "".join(json.dumps(id) + "\n" for id in sorted(only)).encode())
                env["SWE_PROBE_ONLY"] = f"{_PLACE}/only.jsonl"
            if trace:
                env["SWE_PROBE_TRACE"] = ":".join(f"{TREE}/{s}" for s in package.sources)
            done = box.run(shlex.join(probed(package, "python", most)), timeout=timeout, env=env)
            try:
                report = box.read(f"{_PLACE}/report.jsonl", _MOST)
            except OSError:
                report = b""
        finally:
            box.close()
        return outcome(report, done.timed_out, done.seconds, done.output[-2000:])
