"""Where agentgym keeps what it can build again: parsed games, indexes, converted models."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_dir() -> Path:
    """Return $AGENTGYM_CACHE, else $XDG_CACHE_HOME/agentgym, else ~/.cache/agentgym."""
    own = os.environ.get("AGENTGYM_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agentgym"


@contextlib.contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target` if all goes well: another process never sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as tmp:
        inner = Path(tmp) / "new"
        inner.mkdir()
        yield inner
        try:
            inner.rename(target)
        except OSError:
            if not target.exists():  # somebody else was faster: theirs is as good
                raise
