"""What a build of tasks gave, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """What a build gave.

    tasks    packages → how many
    trials   kinds of trials → how many; see build_trial.Trial
    operators, difficulty, splits   names → tasks
    unclear  valid bugs for which no clear text could be written
    run_seconds, seconds   of the runs of tests, one after the other; of the whole build
    """

    file: Path
    sha256: str = ""
    tasks: dict[str, int] = field(default_factory=dict)
    trials: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    difficulty: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    unclear: int = 0
    run_seconds: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return the report as lines of text."""
        rows = [f"{sum(self.tasks.values())} tasks in {self.file} ({self.file.stat().st_size / 1e3:.0f} kB, SHA-256 {self.sha256})"]
        for name, counts in {
            "package": self.tasks,
            "split": self.splits,
            "difficulty": self.difficulty,
            "operator": self.operators,
            "trial": self.trials,
        }.items():
            rows.append(f"  by {name}: " + ", ".join(f"{k} {n}" for k, n in sorted(counts.items(), key=lambda c: (-c[1], c[0]))))
        return "\n".join(
            [*rows, f"  {self.unclear} valid bugs without a clear description; {self.seconds:.0f} s, tests alone {self.run_seconds:.0f} s"]
        )
