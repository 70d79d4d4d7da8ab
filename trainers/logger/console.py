"""The terminal: a live table of the latest rows and bars with the time left; plain lines where there is no terminal."""

from __future__ import annotations

import atexit
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from agentgym.errors import ConfigError
from agentgym.logger import Quiet


class console(Quiet):
    """Show a run on standard output.

    rows     how many of the latest rows of a table stay in view (terminal only)
    columns  how many metrics of a row are shown, the first ones; all are in metrics.jsonl
    metrics  names of the metrics to show instead
    every    seconds between two lines about progress, where standard output is no terminal
    """

    def __init__(self, run_dir: Path, *, rows: int = 8, columns: int = 8, metrics: tuple[str, ...] = (), every: float = 10.0) -> None:
        if rows < 1 or columns < 1 or every < 0:
            raise ConfigError(
                f"the logger 'console' got rows={rows}, columns={columns}, every={every}; rows and columns are at least 1, every at least 0"
            )
        self._columns, self._metrics = columns, metrics
        screen = Console()
        live = screen.is_terminal and not screen.is_dumb_terminal
        self._view: _Screen | _Lines = _Screen(screen, rows) if live else _Lines(every)
        # Whatever ends the process, the terminal gets its cursor back.
        atexit.register(self.close)

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Show a row."""
        names = [m for m in self._metrics if m in metrics] if self._metrics else list(metrics)[: self._columns]
        if names:
            self._view.row(stage, step, {n: f"{metrics[n]:.4g}" for n in names})

    def text(self, message: str) -> None:
        """Show a message."""
        self._view.text(message)

    def progress(self, name: str, done: int, total: int) -> None:
        """Show how far the work called `name` is."""
        self._view.progress(name, done, total)

    def close(self) -> None:
        """Leave the last state on the screen and give the terminal back."""
        self._view.close()
        atexit.unregister(self.close)


class _Screen:
    """A live view. Rows with the same metrics share a table (updates and evaluations have different ones)."""

    def __init__(self, screen: Console, rows: int) -> None:
        self._screen, self._rows = screen, rows
        self._tables: dict[tuple[str, ...], deque[tuple[str, ...]]] = {}
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._tasks: dict[str, TaskID] = {}
        self._live: Live | None = None
        self._closed = False

    def row(self, stage: str, step: int, cells: Mapping[str, str]) -> None:
        head = ("stage", "step", *cells)
        rows = self._tables.pop(head, deque(maxlen=self._rows))  # the table that grew comes last
        rows.append((stage, str(step), *cells.values()))
        self._tables[head] = rows
        self._show()

    def text(self, message: str) -> None:
        # A live display keeps the console to itself: printing through it puts the message above the tables.
        self._screen.print(_printable(message, self._screen.encoding), markup=False, highlight=False)

    def progress(self, name: str, done: int, total: int) -> None:
        bar = self._tasks.get(name)
        if bar is not None and (done >= total or done < self._bars.tasks[self._bars.task_ids.index(bar)].completed):
            self._bars.remove_task(self._tasks.pop(name))  # over, or begun anew under the same name
            bar = None
        if done < total:
            if bar is None:
                bar = self._tasks[name] = self._bars.add_task(name, total=total)
            self._bars.update(bar, completed=done, total=total)
        self._show()

    def close(self) -> None:
        self._closed = True
        for name in list(self._tasks):
            self._bars.remove_task(self._tasks.pop(name))
        if self._live is not None:
            self._live.update(self._content())
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        if self._closed:  # a late word, after close(), must not hide the cursor again
            return
        if self._live is None:
            self._live = Live(console=self._screen, refresh_per_second=4)
            self._live.start()
        self._live.update(self._content())

    def _content(self) -> Group:
        tables = []
        for head, rows in list(self._tables.items())[-3:]:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for i, name in enumerate(head):
                table.add_column(Text(name), justify="left" if i == 0 else "right", overflow="fold")
            for r in rows:
                table.add_row(*map(Text, r))
            tables.append(table)
        return Group(*tables, self._bars)


class _Lines:
    """Plain lines, for files and continuous integration: a line per row, and now and then one about progress."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._begun: dict[str, tuple[float, int]] = {}  # name → when it began, and how far it was then
        self._seen: dict[str, int] = {}
        self._said = time.monotonic()

    def row(self, stage: str, step: int, cells: Mapping[str, str]) -> None:
        self.text(f"{stage} {step} | " + "  ".join(f"{k} {v}" for k, v in cells.items()))

    def text(self, message: str) -> None:
        print(_printable(message, sys.stdout.encoding), flush=True)

    def progress(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done < self._seen.get(name, 0) or name not in self._begun:
            self._begun[name] = now, done
        self._seen[name] = done
        if now - self._said < self._every or done >= total:
            return
        since, first = self._begun[name]
        known = done - first >= max(3, 0.05 * total)  # the first few say little about the rest
        left = f", about {(now - since) / (done - first) * (total - done):.0f} s left" if known else ""
        self.text(f"{name} {done}/{total} ({done / max(total, 1):.0%}){left}")
        self._said = now

    def close(self) -> None: ...


def _printable(text: str, encoding: str | None) -> str:
    """Return `text` with what `encoding` cannot hold as escapes: a strange character of a model must not cost the run its console."""
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)
