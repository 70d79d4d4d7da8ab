"""A held-out panel: play every task k times, say how many succeed and how sure that is, and compare two such evaluations.

A folder of an evaluation holds `panel.json` (what was asked), `episodes.jsonl` (a line per episode, as they finish) and `results.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from .errors import AgentGymError, ConfigError, DataError
from .report import Panel, Report, Row, Share, key, pass_at_k, summarise, table, wilson
from .store import cut_torn_line, dump_line, read_lines, write_atomic
from .types import Status, Task, Trajectory

__all__ = ["Comparison", "Panel", "Report", "Share", "compare", "evaluate", "pass_at_k", "table", "wilson"]

Play = Callable[[Task, int], Awaitable[Trajectory]]


async def evaluate(
    play: Play,
    tasks: Sequence[Task],
    *,
    k: int = 1,
    concurrency: int = 128,
    out: Path | None = None,
    panel: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Play every task `k` times and return the report.

    `play(task, sample)` plays one episode; sample is 0 … k−1, and seeds follow from (task, sample). What it raises makes a broken
    episode and stops no other. With `out`, finished episodes are kept there and not played again; broken ones are, since they
    measured nothing.

    panel     the protocol in words (context, action format, sampling …): part of the panel's hash
    progress  called with (episodes done, episodes in all)

    Raises DataError when `out` holds another panel, TaskError when the tasks are none or not distinct.
    """
    if concurrency < 1:
        raise ConfigError(f"evaluate: concurrency is {concurrency}; it is at least 1")
    asked = Panel.of(tasks, k, panel)
    with _Episodes(asked, out) as episodes:
        jobs = [(task, sample) for task in tasks for sample in range(k) if (key(task), sample) not in episodes.rows]
        done = total = len(tasks) * k
        done -= len(jobs)

        def finished(row: Row) -> None:
            nonlocal done
            episodes.add(row)
            done += 1
            if progress:
                progress(done, total)

        if progress:
            progress(done, total)
        await _play_all(play, jobs, concurrency, finished)
        report = summarise(asked, list(episodes.rows.values()), episodes.wall())
    if out is not None:
        write_atomic(Path(out) / "results.json", report.to_json())
    return report


async def _play_all(play: Play, jobs: Sequence[tuple[Task, int]], concurrency: int, finished: Callable[[Row], None]) -> None:
    """Play the jobs, `concurrency` at a time; each goes its own way."""
    queue = iter(jobs)  # shared by the workers: whoever is free takes the next

    async def work() -> None:
        for task, sample in queue:
            try:
                row = _row(task, sample, await play(task, sample))
            except Exception as e:
                row = _broken(task, sample, str(e) if isinstance(e, AgentGymError) else f"{type(e).__name__}: {e}")
            finished(row)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(jobs))):
                group.create_task(work())
    except BaseExceptionGroup as e:  # not from an episode: the disk is full, or `progress` raised; one of them says it all
        raise e.exceptions[0] from None


def _row(task: Task, sample: int, trajectory: Trajectory) -> Row:
    if trajectory.failed:
        return _broken(task, sample, trajectory.error or "the episode broke and gave no reason")
    t = trajectory
    last = t.steps[-1].info if t.steps else {}
    kind = next((d["task_type"] for d in (t.info, last, task.data) if "task_type" in d), "")
    return {
        "task": key(task),
        "sample": sample,
        "task_type": str(kind),
        "status": t.status.value,
        "success": bool(t.success),
        "return": float(t.outcome),
        "steps": len(t.steps),
        "invalid": sum(not s.valid for s in t.steps),
        "cause": None if t.success else last.get("cause"),
        "error": None,
    }


def _broken(task: Task, sample: int, reason: str) -> Row:
    return {
        "task": key(task),
        "sample": sample,
        "task_type": str(task.data.get("task_type", "")),
        "status": Status.ERROR.value,
        "error": reason,
    }


class _Episodes:
    """The rows of a panel by (task, sample): in memory, and in `out` when there is one."""

    def __init__(self, panel: Panel, out: Path | None) -> None:
        self.panel, self.rows = panel, dict[tuple[str, int], Row]()
        self._start, self._before, self._synced = time.monotonic(), 0.0, time.monotonic()
        self._file: BinaryIO | None = None
        if out is None:
            return
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        self._claim(folder)
        path = folder / "episodes.jsonl"
        cut_torn_line(path)
        if path.exists():
            for row in _read_rows(path, panel):
                self._before = max(self._before, row["wall"])
                if row["status"] != Status.ERROR:
                    self.rows[row["task"], row["sample"]] = row
        self._file = open(path, "ab")  # noqa: SIM115  (closed by __exit__)

    def _claim(self, folder: Path) -> None:
        """Note in the folder which panel it belongs to. Raises DataError when it belongs to another."""
        path = folder / "panel.json"
        if path.exists():
            there = _read_panel(folder)
            if there.hash != self.panel.hash:
                raise DataError(
                    f"{folder} holds an evaluation of another panel ({there.hash}, this one is {self.panel.hash}): "
                    f"{there.differs(self.panel)} (there, here). Evaluate into another folder, or delete this one."
                )
        else:
            write_atomic(path, json.dumps(asdict(self.panel) | {"hash": self.panel.hash}, indent=1, ensure_ascii=False) + "\n")

    def wall(self) -> float:
        """Return the seconds spent so far, over all sessions."""
        return self._before + time.monotonic() - self._start

    def add(self, row: Row) -> None:
        """Keep a finished episode. It is on the disk's way at once, and synced once a second: a power cut costs a second of episodes."""
        row = {"panel": self.panel.hash, **row, "wall": round(self.wall(), 3)}
        self.rows[row["task"], row["sample"]] = row
        if self._file:
            self._file.write(dump_line(row, f"episode of {row['task']}"))
            self._file.flush()
            if time.monotonic() - self._synced > 1:
                self._sync()

    def _sync(self) -> None:
        if self._file:
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def __enter__(self) -> _Episodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file:
            self._sync()
            self._file.close()


def _read_rows(path: Path, panel: Panel) -> Iterator[Row]:
    for number, row in enumerate(read_lines(path), 1):
        if row.get("panel") != panel.hash:
            raise DataError(
                f"{path}, line {number} belongs to panel {row.get('panel')!r}, the folder to {panel.hash!r} (panel.json): "
                "the files were mixed. Evaluate into another folder, or delete this one."
            )
        yield row


def _read_panel(folder: Path) -> Panel:
    path = Path(folder) / "panel.json"
    if not path.is_file():
        raise DataError(f"{folder} holds no evaluation: there is no panel.json. Give the folder that `agentgym eval` wrote.")
    try:
        row = json.loads(path.read_text("utf-8"))
        return Panel(row["tasks"], row["k"], row["protocol"])
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(f"{path} is damaged ({type(e).__name__}: {e}); evaluate again into another folder") from e


# ------------------------------------------------------------------------------------------------------------- comparison


@dataclass
class Comparison:
    """Two evaluations of one panel, task by task.

    a, b, difference   mean over the tasks of their success rates, and b − a
    low, high          95 % interval of the difference: bootstrap over tasks, the pairs kept together
    p                  twice the share of resamples with no difference or one the other way, at most 1: small when chance explains little
    both … neither     episodes (same task, same sample) by who succeeded
    tasks, left_out    tasks compared; tasks left out because an episode of theirs is missing or broke on either side
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    both: int
    only_a: int
    only_b: int
    neither: int
    tasks: int
    left_out: int
    resamples: int = 10_000

    def to_json(self) -> str:
        """Return the comparison as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def __rich__(self) -> str:
        return str(self).replace("[", r"\[")  # or rich takes the interval for markup

    def __str__(self) -> str:
        missing = f"\n{self.left_out} tasks LEFT OUT: an episode is missing or broke" if self.left_out else ""
        return (
            f"a {self.a:.1%}   b {self.b:.1%}   b − a {self.difference:+.1%} [{self.low:+.1%}, {self.high:+.1%}]   p ≈ {self.p:.4f}   "
            f"({self.tasks} tasks, paired bootstrap, {self.resamples} resamples)\n"
            f"both {self.both} · only a {self.only_a} · only b {self.only_b} · neither {self.neither}{missing}"
        )


def compare(a: Path, b: Path, *, resamples: int = 10_000, seed: int = 0) -> Comparison:
    """Compare the evaluations in folders `a` and `b`. Raises DataError when they asked different things, and says what differs."""
    first, second = _read_panel(a), _read_panel(b)
    if first.hash != second.hash:
        raise DataError(f"{a} and {b} evaluated different panels: {first.differs(second)}. Evaluate both on the same panel.")
    won_a, won_b = _wins(a, first), _wins(b, second)
    # A task that lost a sample on one side would be compared over different samples: it is left out whole, and counted.
    paired = [t for t in first.tasks if len(won_a.get(t, {})) == len(won_b.get(t, {})) == first.k]
    if not paired:
        raise DataError(f"{a} and {b} have no task that both finished; run the evaluations to their end")
    wins = np.array([[[won[t][i] for i in range(first.k)] for t in paired] for won in (won_a, won_b)])  # [side, task, sample]
    rates = wins.mean(axis=2)
    difference = rates[1] - rates[0]
    # Rounded, so that a sum that is zero on paper counts as zero.
    drawn = _bootstrap_means(difference, resamples, np.random.default_rng(seed)).round(12)
    low, high = np.quantile(drawn, [0.025, 0.975])
    in_a, in_b = wins[0], wins[1]
    return Comparison(
        a=float(rates[0].mean()),
        b=float(rates[1].mean()),
        difference=float(difference.mean()),
        low=float(low),
        high=float(high),
        p=min(1.0, 2 * float(min((drawn <= 0).mean(), (drawn >= 0).mean()))),
        both=int((in_a & in_b).sum()),
        only_a=int((in_a & ~in_b).sum()),
        only_b=int((~in_a & in_b).sum()),
        neither=int((~in_a & ~in_b).sum()),
        tasks=len(paired),
        left_out=len(first.tasks) - len(paired),
        resamples=resamples,
    )


def _bootstrap_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the means of `resamples` resamples of `values`.

    Resampling rows is drawing from the distinct values with multinomial counts: the same law, without a matrix of row indices.
    """
    distinct, counts = np.unique(values, return_counts=True)
    return rng.multinomial(len(values), counts / len(values), size=resamples) @ distinct / len(values)


def _wins(folder: Path, panel: Panel) -> dict[str, dict[int, bool]]:
    """Return task → sample → success of the episodes that did not break."""
    out: dict[str, dict[int, bool]] = {}
    for row in _read_rows(Path(folder) / "episodes.jsonl", panel):
        if row["status"] != Status.ERROR:
            out.setdefault(row["task"], {})[row["sample"]] = row["success"]
    return out
