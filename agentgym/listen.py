"""What a server of ours does before it serves: take its port, and say how much memory it uses."""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
from pathlib import Path

from .errors import ConfigError


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that holds the port: before a long build, not after it. Raises ConfigError where that cannot be."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as e:
        listener.close()
        reason = "another program listens there" if getattr(e, "errno", None) == errno.EADDRINUSE else str(e)
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}; choose another one with --port (0: any that is free)") from e
    listener.set_inheritable(True)
    return listener


def memory_mb() -> float:
    """Return the megabytes of memory that this process has in use."""
    try:
        return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError):  # another system than Linux: the most that was ever in use
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
