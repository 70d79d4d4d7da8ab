"""The state of a work tree, as a key: the hash of its content, so that different commands that lead to the same tree meet."""

from __future__ import annotations

import re
import shlex

from agentgym.errors import EnvError

from .changes import helper
from .sandbox import Sandbox

_SECONDS = 60.0


def tree_key(box: Sandbox, python: str) -> str:
    """Return the hash of names, content, links and rights of all files but .git and compiled ones. Raises EnvError where it cannot be had.

    It is made by a process of ours, apart from the agent's shell. The agent can end that process; then there is another.
    """
    command = shlex.join([python, "-I", "-S", "-c", helper(), "key", box.tree])
    for attempt in range(4):
        if attempt == 2:
            box.snapshot()  # the agent's processes disturb it: they are ended
        found = re.search(r"^[0-9a-f]{32}$", box.aside(command, timeout=_SECONDS), re.MULTILINE)
        if found:
            return found[0]
    raise EnvError("the content of the work tree cannot be hashed: the sandbox gives no answer")
