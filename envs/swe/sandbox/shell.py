"""A bash that takes one command after the other: how a command is given to it, and how its end is known.

The bash reads from its stdin, writes the commands' output to its stdout, and says on its stderr, which no command gets, how each one ended. Every
command is followed by a mark of its own that nobody knows before, in the output and on stderr; so no output can look like the end of a command.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Literal, Protocol

from .output import Output

ARGV = ["/bin/bash", "--norc", "--noprofile"]
SIGN = b"\x1e"  # every mark in the output starts with it: what has none, which is nearly all output, is looked through fast
# 198: the control channel, 199: the output. A command gets neither of them, so that it can close or redirect what it likes.
_PRELUDE = b"""exec 198>&2 199>&1 1>/dev/null 2>/dev/null
__agentgym() { builtin printf '\\x1e%s%s' "$1" "$2" >&199; builtin printf '%s%s %d\\n' "$1" "$2" "$3" >&198; return "$3"; }
builtin printf 'ready\\n' >&198
"""
_FAREWELL_S = 30.0
_CLOSED_FDS = "</dev/null >&199 2>&199 198>&- 199>&-"


class Channel(Protocol):
    """The two streams of a process and its stdin."""

    ordered: bool  # whether all output that was written before a word on the control stream can be read when that word has been read

    def send(self, data: bytes, deadline: float) -> None:
        """Write to its stdin until time.monotonic() is `deadline`; what cannot be written by then is lost, and so is what nobody will read."""
        ...

    def poll(self, timeout: float) -> list[tuple[Literal["out", "control", "end"], bytes]]:
        """Wait for what it writes, at most so many seconds; `end` is the end of both streams and comes again and again."""
        ...

    def close(self) -> None: ...


@dataclass
class Ended:
    """How a command ended.

    how  done: the shell waits for the next one. gone: the shell has ended, with `code`. lost: nobody said how. late: it has not ended.
         unborn: the shell did not start; `text` says what was wrong
    """

    how: Literal["done", "gone", "lost", "late", "unborn"]
    code: int | None
    text: str
    dropped: int


class Shell:
    """One bash at the other end of a channel."""

    def __init__(self, channel: Channel, *, farewell: bytes = b"") -> None:
        """farewell: what its output ends with, after SIGN, when it has gone, where the channel is not ordered."""
        self._channel, self._farewell = channel, farewell and SIGN + farewell
        self._control = b""
        self._held = b""  # output that may be the start of a mark
        self._greeted = self._ready = self._parted = False
        self._words = ""  # what came on the control stream before `ready`

    def execute(self, command: str, timeout: float, characters: int) -> Ended:
        """Run one command and wait for its end at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        first, second = secrets.token_hex(8), secrets.token_hex(8)  # apart in what the shell reads, so that its trace does not have the mark
        quoted = command.replace("'", "'\\''")
        request = f"eval '{quoted}' {_CLOSED_FDS}\n__agentgym {first} {second} $?\n".encode("utf-8", "surrogatepass")
        self._channel.send(request if self._greeted else _PRELUDE + request, deadline)
        self._greeted = True
        return self._wait(first + second, deadline, Output(characters))

    def _wait(self, token: str, deadline: float, output: Output) -> Ended:
        mark = SIGN + token.encode()
        code: int | None = None
        gone: int | None = None
        marked = False
        while code is None or not marked:
            for kind, data in self._channel.poll(max(0.0, deadline - time.monotonic())):
                if kind == "end":
                    return self._over("lost", None, output)
                if kind == "out":
                    marked = self._take(data, mark, output) or marked
                    continue
                for word in self._said(data):
                    if word.startswith("gone "):
                        gone = int(word[5:])
                    elif word.startswith(token + " "):
                        code = int(word.split()[1])
            if gone is not None:  # after all that came with that word
                self._last_words(mark, output)
                return self._over("gone", gone, output)
            if time.monotonic() >= deadline and (code is None or not marked):
                return self._over("late", None, output)
        return Ended("done", code, *output.text())

    def _said(self, data: bytes) -> list[str]:
        """Return the whole lines of the control stream, without those that say whether the shell is there."""
        *lines, self._control = (self._control + data).split(b"\n")
        self._control = self._control[-4096:]
        words = []
        for line in lines:
            text = line.decode("utf-8", "replace")
            if text == "ready":
                self._ready = True
            elif self._ready or text.startswith("gone "):
                words.append(text)
            else:
                self._words += text + "\n"
        return words

    def _take(self, data: bytes, mark: bytes, output: Output) -> bool:
        """Add to the output what is before the mark, or before the farewell; return whether the mark has come."""
        if self._parted:
            return False
        data = self._held + data
        ends = [at for sign in (mark, self._farewell) if sign and SIGN in data and (at := data.find(sign)) >= 0]
        if not ends:
            last = data.rfind(SIGN, max(0, len(data) - len(mark) + 1))
            sure = len(data) if last < 0 else last
            output.add(data[:sure])
            self._held = data[sure:]
            return False
        output.add(data[: min(ends)])
        marked = data.startswith(mark, min(ends))
        self._held = data[min(ends) + len(mark) :] if marked else b""
        self._parted = not marked
        return marked

    def _last_words(self, mark: bytes, output: Output) -> None:
        """Read what the shell wrote before it went: all that is there, or up to its farewell."""
        give_up = time.monotonic() + (0.0 if self._channel.ordered else _FAREWELL_S)
        while not self._parted:
            events = self._channel.poll(max(0.0, give_up - time.monotonic()))
            for kind, data in events:
                if kind == "out":
                    self._take(data, mark, output)
            if not events or events[-1][0] == "end":
                return

    def _over(self, how: Literal["gone", "lost", "late"], code: int | None, output: Output) -> Ended:
        output.add(self._held)
        self._held = b""
        text, dropped = output.text()
        if not self._ready and how != "late":
            return Ended("unborn", code, (self._words + self._control.decode("utf-8", "replace") + text).strip(), 0)
        return Ended(how, code, text, dropped)

    def close(self) -> None:
        """Leave it: its stdin ends, and so does it."""
        self._channel.close()
