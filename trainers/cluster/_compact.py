"""Trajectories on their way between processes: numbers as arrays of the narrowest type that holds them exactly, every text once.

What comes out is equal to what went in, number for number: a log-probability travels in four bytes only where that loses nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agentgym.types import Completion, Status, Step, Task, Trajectory

_INTEGERS = ("u1", "u2", "u4", "i8")
_NONE = 0  # lengths are stored plus one: 0 stands for None
_PER_TOKEN, _NEW_SEGMENT, _VALID, _STOPPED = 1, 2, 4, 8

Column = tuple[str, bytes]


def compact(trajectories: Sequence[Trajectory], known: Sequence[Task]) -> bytes:
    """Return trajectories as bytes; `known`: the task of each as the receiver has it, which is left out where it is the same object."""
    w = _Writer()
    heads = []
    for t, task in zip(trajectories, known, strict=True):
        for step in t.steps:
            w.step(step)
        here = None if t.task is task else t.task
        heads.append((here, t.group, len(t.steps), t.rewards, t.outcome, t.success, t.status.value, t.error, w.text(t.final_observation), t.info))
    texts = list(w.texts)
    lengths = _integers([len(x) for x in texts])
    # A lone surrogate, which a model can write, has no UTF-8 form of its own.
    blob = "".join(texts).encode("utf-8", "surrogatepass")
    columns = (_integers(w.fields), _integers(w.tokens), _integers(w.versions), _reals(w.logprobs), _reals(w.rewards))
    return pickle.dumps((columns, lengths, blob, heads, w.infos), protocol=5)


def expand(data: bytes, known: Sequence[Task]) -> list[Trajectory]:
    """Return the trajectories that `compact` was given; `known` as there."""
    columns, lengths, blob, heads, infos = pickle.loads(data)
    text, texts, at = blob.decode("utf-8", "surrogatepass"), [], 0
    for n in _values(lengths):
        texts.append(text[at : at + n])
        at += n
    r = _Reader(columns, texts, infos)
    out = []
    for (task, group, steps, rewards, outcome, success, status, error, final, info), mine in zip(heads, known, strict=True):
        played = [r.step() for _ in range(steps)]
        out.append(Trajectory(mine if task is None else task, group, played, rewards, outcome, success, Status(status), error, texts[final], info))
    return out


class _Writer:
    """Collects steps column by column."""

    def __init__(self) -> None:
        self.fields, self.tokens, self.versions = list[int](), list[int](), list[int]()
        self.logprobs, self.rewards = list[float](), list[float]()
        self.infos: list[dict[str, Any]] = []
        self.texts: dict[str, int] = {}

    def text(self, value: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(value, len(self.texts))

    def step(self, s: Step) -> None:
        c = s.completion
        per_token = isinstance(c.version, list)
        versions = c.version if isinstance(c.version, list) else [c.version]
        flags = _PER_TOKEN * per_token + _NEW_SEGMENT * s.new_segment + _VALID * s.valid + _STOPPED * (c.finish == "stop")
        self.fields += [
            flags, len(s.prompt), _NONE if c.tokens is None else len(c.tokens) + 1, _NONE if c.logprobs is None else len(c.logprobs) + 1,
            len(versions), self.text(s.observation), self.text(c.text), self.text(s.action), self.text(s.state), len(self.infos) + 1 if s.info else 0,
        ]  # fmt: skip
        if s.info:
            self.infos.append(s.info)
        self.tokens += [*s.prompt, *(c.tokens or ())]
        self.logprobs += c.logprobs or ()
        self.versions += versions
        self.rewards += [s.reward, s.penalty]


class _Reader:
    """Gives the steps back in the order in which they were written."""

    def __init__(self, columns: Sequence[Column], texts: list[str], infos: list[dict[str, Any]]) -> None:
        self._fields, self._tokens, self._versions, self._logprobs, self._rewards = (iter(_values(c)) for c in columns)
        self._texts, self._infos = texts, infos

    def step(self) -> Step:
        flags, prompt, tokens, logprobs, versions, observation, text, action, state, info = _take(self._fields, 10)
        read = _take(self._tokens, prompt)
        written = None if tokens == _NONE else _take(self._tokens, tokens - 1)
        scores = None if logprobs == _NONE else _take(self._logprobs, logprobs - 1)
        version = _take(self._versions, versions)
        done = Completion(self._texts[text], written, scores, "stop" if flags & _STOPPED else "length", version if flags & _PER_TOKEN else version[0])
        reward, penalty = _take(self._rewards, 2)
        x, kept = self._texts, dict(self._infos[info - 1]) if info else {}
        return Step(read, bool(flags & _NEW_SEGMENT), done, x[action], bool(flags & _VALID), x[observation], reward, x[state], penalty, kept)


def _take(values: Iterator[Any], n: int) -> list[Any]:
    return [next(values) for _ in range(n)]


def _integers(values: Sequence[int]) -> Column:
    """Return integers in the narrowest type that holds them all."""
    low, high = min(values, default=0), max(values, default=0)
    kind = next(k for k in _INTEGERS if np.iinfo(k).min <= low and high <= np.iinfo(k).max)
    return kind, np.array(values, dtype=kind).tobytes()


def _reals(values: Sequence[float]) -> Column:
    """Return numbers in four bytes each where that changes none of them, else in eight."""
    wide = np.array(values, dtype="f8")
    with np.errstate(over="ignore"):
        narrow = wide.astype("f4")
    exact = bool(np.array_equal(narrow.astype("f8"), wide, equal_nan=True))
    return ("f4", narrow.tobytes()) if exact else ("f8", wide.tobytes())


def _values(column: Column) -> list[Any]:
    kind, data = column
    out: list[Any] = np.frombuffer(data, dtype=kind).tolist()
    return out
