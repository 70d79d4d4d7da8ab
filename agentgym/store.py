"""Trajectories on disk: JSON lines that a person can read, and exactly the trajectory that was written comes back.

One object per episode, plain (`.jsonl`) or compressed (`.jsonl.gz`); files grow by appending. A process that is killed while it
writes leaves at most one torn end, which reading skips with a warning and the next `write` cuts off.
"""

from __future__ import annotations

import gzip
import json
import mmap
import os
import textwrap
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DataError
from .types import Completion, Status, Step, Task, Trajectory

# What starts each compressed block (mtime 0, no name): ten bytes that do not occur by chance, so the last block is found.
_GZIP_START = gzip.compress(b"", compresslevel=6, mtime=0)[:10]
_CHUNK = 1 << 20


# ------------------------------------------------------------------------------------------------------------- JSON lines


def write_atomic(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with open(partial, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(partial, path)


def dump_line(row: dict[str, Any], where: str) -> bytes:
    """Return `row` as one JSON line. Text stays readable; NumPy values become plain ones. Raises DataError on what JSON cannot hold."""
    try:
        try:
            return (json.dumps(row, ensure_ascii=False, default=_plain) + "\n").encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate, which a model can write, has no UTF-8 form, but a JSON escape
            return (json.dumps(row, default=_plain) + "\n").encode("utf-8")
    except (TypeError, ValueError) as e:
        raise DataError(f"{where}: {e}; keep to str, int, float, bool, None, list and dict (or NumPy values)") from e


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} ({value!r:.80}) cannot be written as JSON")


def cut_torn_line(path: Path) -> int:
    """Cut what follows the last line end of a plain file and return how many bytes went (0: the file was whole, or is not there)."""
    if not path.exists():
        return 0
    with open(path, "r+b") as f:
        end = size = f.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _CHUNK)
            f.seek(start)
            at = f.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            f.truncate(end)
    return size - end


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON lines file, plain or `.gz`.

    A torn end is skipped with a warning. Raises DataError when the file is missing or damaged elsewhere.
    """
    number, rest = 0, b""
    for block in _blocks(path):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            number += 1
            yield _parse(line, path, number)
    if rest:
        warnings.warn(f"{path}: line {number + 1} is torn (the writer was killed); it is skipped", stacklevel=2)


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as e:
        raise DataError(f"{path}, line {number} is not JSON ({e}): the file is damaged; restore it, or delete the line") from e
    if not isinstance(row, dict):
        raise DataError(f"{path}, line {number} holds a {type(row).__name__}, expected an object")
    return row


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in blocks; of a torn compressed file, all that can be had."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with open(path, "rb") as f:
        if path.suffix != ".gz":
            yield from iter(lambda: f.read(_CHUNK), b"")
            return
        stream = zlib.decompressobj(wbits=31)
        for block in iter(lambda: f.read(_CHUNK), b""):
            while block:
                try:
                    yield stream.decompress(block)
                except zlib.error as e:
                    raise DataError(f"{path} is not a gzip file, or it is damaged ({e})") from e
                block = stream.unused_data
                if stream.eof:
                    stream = zlib.decompressobj(wbits=31)


def _append(path: Path, data: bytes) -> None:
    """Append whole lines to a file in one piece, after cutting a torn end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
        cut = _cut_torn_block(path)
    else:
        cut = cut_torn_line(path)
    if cut:
        warnings.warn(f"{path}: cut {cut} bytes of a torn end (the last writer was killed)", stacklevel=3)
    with open(path, "ab") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def _cut_torn_block(path: Path) -> int:
    """Cut the last compressed block of a file when it is not whole, and return how many bytes went. Costs one block, not the file."""
    if not path.exists() or not (size := path.stat().st_size):
        return 0
    with open(path, "r+b") as f:
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
            start = max(0, m.rfind(_GZIP_START))
            rest = m[start:]
        try:
            while rest:
                stream = zlib.decompressobj(wbits=31)
                stream.decompress(rest)
                if not stream.eof:
                    break
                rest = stream.unused_data
            else:
                return 0
        except zlib.error:
            pass  # as good as torn
        f.truncate(start)
    return size - start


# ------------------------------------------------------------------------------------------------------------ trajectories


def write(path: Path, trajectories: Iterable[Trajectory], *, advantages: Sequence[Sequence[float]] | None = None) -> None:
    """Append trajectories to `path` (`.gz`: compressed).

    `advantages`: one list per trajectory, one number per step, kept in the rows for people (`read_lines` shows them; `read` has no use for
    them). Raises DataError when their lengths do not fit, or a trajectory holds what JSON cannot.
    """
    episodes = list(trajectories)
    if advantages is not None and [len(a) for a in advantages] != [len(t.steps) for t in episodes]:
        raise DataError(
            f"store.write({path}): advantages have lengths {[len(a) for a in advantages]}, "
            f"the trajectories have {[len(t.steps) for t in episodes]} steps; give one number per step of every trajectory"
        )
    lines = [dump_line(to_row(t, advantages[i] if advantages is not None else None), f"{path}, task {t.task.id!r}") for i, t in enumerate(episodes)]
    if lines:
        _append(Path(path), b"".join(lines))


def read(path: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a file that `write` made. A torn end is skipped with a warning; other damage raises DataError."""
    for number, row in enumerate(read_lines(Path(path)), 1):
        try:
            yield from_row(row)
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"{path}, line {number} is not a trajectory ({type(e).__name__}: {e})") from e


def to_row(trajectory: Trajectory, advantages: Sequence[float] | None = None) -> dict[str, Any]:
    """Return a trajectory as one JSON object, what a person looks for first."""
    t = trajectory
    steps = [_step_row(s, None if advantages is None else float(advantages[i])) for i, s in enumerate(t.steps)]
    return {
        "task": {
            "id": t.task.id,
            "env": t.task.env,
            "split": t.task.split,
            "seed": t.task.seed,
            "data": dict(t.task.data),
        },
        "group": t.group,
        "status": t.status.value,
        "success": t.success,
        "outcome": t.outcome,
        "rewards": t.rewards,
        "error": t.error,
        "steps": steps,
        "final_observation": t.final_observation,
        "info": t.info,
    }


def _step_row(step: Step, advantage: float | None) -> dict[str, Any]:
    completion = asdict(step.completion)
    return {
        "observation": step.observation,
        "completion": completion.pop("text"),
        "action": step.action,
        "valid": step.valid,
        "reward": step.reward,
        "penalty": step.penalty,
        **({} if advantage is None else {"advantage": advantage}),
        "state": step.state,
        "new_segment": step.new_segment,
        "prompt": step.prompt,
        **completion,  # tokens, logprobs, finish, version
        "info": step.info,
    }


def from_row(row: dict[str, Any]) -> Trajectory:
    """Return the trajectory of a row that `to_row` made."""
    fields = dict(row)
    steps = [_step_from(s) for s in fields.pop("steps")]
    return Trajectory(**fields | {"task": Task(**fields["task"]), "status": Status(fields["status"]), "steps": steps})


def _step_from(row: dict[str, Any]) -> Step:
    fields = {k: v for k, v in row.items() if k != "advantage"}
    written = {k: fields.pop(k) for k in ("tokens", "logprobs", "finish", "version")}
    return Step(**fields | {"completion": Completion(text=fields["completion"], **written)})


# -------------------------------------------------------------------------------------------------------------- for people


def episode_text(trajectory: Trajectory, *, advantages: Sequence[float] | None = None) -> str:
    """Return an episode as a transcript: what the agent saw, what it wrote, what came of it. It always has a UTF-8 form."""
    t = trajectory
    end = {Status.TERMINATED: "ended", Status.TRUNCATED: "cut off", Status.ERROR: "BROKEN"}[t.status]
    verdict = "success" if t.success else "no verdict" if t.failed else "no success"
    lines = [f"task {t.task.id} ({t.task.env}, {t.task.split}) · {end} after {len(t.steps)} steps · {verdict} · return {t.outcome:g}"]
    for i, step in enumerate(t.steps):
        notes = [f"reward {step.reward:g}"] if step.reward else []
        notes += [f"penalty {step.penalty:g}"] if step.penalty else []
        notes += [] if step.valid else ["invalid"]
        notes += ["cut at the token limit"] if step.completion.finish == "length" else []
        notes += [f"advantage {advantages[i]:+.3f}"] if advantages is not None else []
        lines += ["", _block(f"{i + 1:>3}  saw  ", step.observation)]
        if step.completion.text.strip() != step.action.strip():
            lines.append(_block("    wrote  ", step.completion.text))
        lines.append(_block("      did  ", step.action + (f"   [{', '.join(notes)}]" if notes else "")))
    if t.final_observation:
        lines += ["", _block("   at last  ", t.final_observation)]
    if t.error:
        lines += ["", _block("    error  ", t.error)]
    if t.rewards:
        lines += ["", "  rewards  " + ", ".join(f"{name} {value:g}" for name, value in t.rewards.items())]
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace").decode("utf-8")  # a model can write lone surrogates


def _block(label: str, text: str) -> str:
    return label + textwrap.indent(text.strip("\n"), " " * len(label), lambda _: True)[len(label) :]
