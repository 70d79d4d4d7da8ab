"""How far a long piece of work is, and how long it will still take: a bar on a terminal, else a line every 30 seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress

_QUIET_S = 2.0  # work that takes less than this many seconds is not worth a line

Advance = Callable[[int], None]


@contextlib.contextmanager
def shown(what: str, total: int, progress: bool) -> Iterator[Advance]:
    """Show on stderr how far `what` is and how long it will take; yield a function that takes what was done of `total` since the last call."""
    console = Console(stderr=True)
    if progress and console.is_terminal:
        with Progress(*Progress.get_default_columns(), console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)
        return
    start = said = time.monotonic()
    sofar = 0

    def advance(done: int) -> None:
        nonlocal said, sofar
        sofar += done
        now = time.monotonic()
        if progress and sofar and now - said > (30 if said > start else _QUIET_S):
            said = now
            left = (now - start) * max(0, total - sofar) / sofar
            print(f"{what}: {100 * sofar / max(1, total):.0f} %, about {left:.0f} s left", file=sys.stderr, flush=True)

    yield advance
