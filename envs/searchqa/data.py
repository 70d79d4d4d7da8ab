"""Question sets: every row format in use, read from a file or a hub into `Question`s.

    load("nq/test.jsonl")    load("train.parquet", split="train")    load("hub:owner/name:config")    load("factbook", split="train")

| format | question | answers |
|---|---|---|
| FlashRAG | question | golden_answers |
| Search-R1, verl | question, extra_info.question, or the prompt's end: `Question: …` | reward_model.ground_truth: {target: [..]}, a list, or a text |
| verl-agent | env_kwargs.question | env_kwargs.ground_truth |
| NQ-open, HotpotQA, any other | question | answer or answers: a text or a list |
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentgym.errors import DataError
from agentgym.rows import SUFFIXES, rows, short

SOURCES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
_SPLITS = {"train": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev", "test": "test"}
_EXPECTED = (
    "expected a question (question, env_kwargs.question, extra_info.question, or a prompt that ends in 'Question: …') and right answers "
    "(golden_answers, answers, answer, env_kwargs.ground_truth, or reward_model.ground_truth: a text, a list, or {'target': [..]})"
)


@dataclass(frozen=True)
class Question:
    """One question: `answers` are all the right ones; `source` says which set it is from ("nq", …, "factbook")."""

    id: str
    question: str
    answers: tuple[str, ...]
    source: str
    split: str  # "" where nothing says it
    extra: Mapping[str, Any] = field(default_factory=dict)


def load(path_or_name: str | Path, *, split: str | None = None, limit: int | None = None) -> list[Question]:
    """Return the questions of a file, of `hub:owner/name[:config]` (needs a network), or of "factbook", the embedded set.

    Rows that say another split than `split` are left out; rows that say none belong to it. `limit` keeps the first n. An id is
    `source/id of the row`, or `source/hash of the question`; when it occurs again, `#2` follows. Raises DataError for a file that
    is not there and for a row that is no question with an answer: file, row (from 1), what is wrong, what is allowed.
    """
    name = str(path_or_name)
    if limit is not None and limit < 1:
        raise DataError(f"load({name!r}, limit={limit}): expected at least 1, or None for all")
    if name == "factbook":
        return _factbook(split)[:limit]
    wanted = _split(split) if split is not None else ""
    out: list[Question] = []
    seen: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    for where, row, hints in _rows(name, split):
        question = _question(row, where, hints)
        splits[question.split] += 1
        seen[question.id] += 1  # counted before the split is looked at: an id does not depend on which split is asked for
        if seen[question.id] > 1:
            question = replace(question, id=f"{question.id}#{seen[question.id]}")
        if question.split in ("", wanted) or not wanted:
            out.append(replace(question, split=question.split or wanted))
        if len(out) == limit:
            break
    if not out:
        there = ", ".join(f"{s or 'no split'}: {n}" for s, n in splits.items()) or "nothing"
        raise DataError(f"{name} has no questions" + (f" of split {split!r}; it has {there}" if split else ": it is empty; " + _EXPECTED))
    return out


def _factbook(split: str | None) -> list[Question]:
    from .factbook import SPLITS, questions  # it imports this module

    return [q for name in ([split] if split is not None else SPLITS) for q in questions(split=name)]


# --- rows of a file ------------------------------------------------------------------------------------------------

_Row = tuple[str, Any, tuple[str, ...]]  # where it stands, what stands there, names that may tell the source, the first of them also the split


def _rows(name: str, split: str | None) -> Iterator[_Row]:
    """Yield the rows of a file, or of `hub:owner/name[:config]`: of one split, or of all of them."""
    repo, _, config = name.removeprefix("hub:").partition(":")
    path = Path(name)
    stem = next((path.name.removesuffix(s) for s in sorted(SUFFIXES, key=len, reverse=True) if path.name.endswith(s)), path.name)
    for where, row, part in rows(name, split, what="a set of questions", key="data", also=", or factbook"):
        yield where, row, (part, config, repo.rpartition("/")[2]) if name.startswith("hub:") else (stem, path.resolve().parent.name)


# --- one row -------------------------------------------------------------------------------------------------------


def _question(row: Any, where: str, hints: tuple[str, ...]) -> Question:
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise DataError(f"{where} is {short(row)}; expected an object: {_EXPECTED}")
    info, task = _dict(row, "extra_info"), _dict(row, "env_kwargs")
    text = next((q.strip() for q in (row.get("question"), task.get("question"), info.get("question")) if isinstance(q, str) and q.strip()), "")
    text = text or _from_prompt(row.get("prompt"))
    if not text:
        raise DataError(f"{where} has no question in {short(row)}; {_EXPECTED}")
    answers = _answers(row, task, where)
    source = _source(str(row.get("data_source") or task.get("data_source") or ""), hints)
    own = next((row[key] for key in ("id", "_id") if row.get(key) not in (None, "")), None)
    if own is None and isinstance(info.get("index"), int):
        own = f"{info.get('split') or 'row'}_{info['index']}"
    split = str(row.get("split") or info.get("split") or "") or _split_of((str(own or ""), hints[0]))
    if own is None:
        own = hashlib.sha256("\n".join([text, *answers]).encode()).hexdigest()[:16]
    used = {"id", "_id", "question", "answer", "answers", "split", "data_source", "prompt"}
    extra = {key: value for key, value in row.items() if key not in used and isinstance(value, str | int | float)}
    return Question(f"{source}/{own}", text, answers, source, _split(split), extra)


def _dict(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _from_prompt(prompt: Any) -> str:
    """Return the question at the end of a prompt, or the whole of a prompt that gives no instructions."""
    if isinstance(prompt, list):
        messages = [m for m in prompt if isinstance(m, dict) and m.get("role") != "system"]
        prompt = messages[-1].get("content") if messages else None
    if not isinstance(prompt, str):
        return ""
    _, mark, tail = prompt.rpartition("Question:")
    return tail.strip() if mark else ("" if "<" in prompt else prompt.strip())


def _answers(row: Mapping[str, Any], task: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the right answers, each once, in the order of the row."""
    if row.get("is_impossible") is True or row.get("answerable") is False:
        raise DataError(f"{where} is marked as not answerable: {short(row)}; leave such rows out")
    places = {key: row.get(key) for key in ("golden_answers", "answers", "answer")}
    places |= {"env_kwargs.ground_truth": task.get("ground_truth"), "reward_model.ground_truth": _dict(row, "reward_model").get("ground_truth")}
    given = {place: value for place, value in places.items() if value is not None}
    if not given:
        raise DataError(f"{where} has no right answers in {short(row)}; {_EXPECTED}")
    place, value = next(iter(given.items()))
    found = value
    if isinstance(found, dict):  # Search-R1: target; SQuAD: text; TriviaQA: value and aliases
        found = [found[key] for key in ("target", "text", "value", "aliases") if key in found]
        found = [a for part in found for a in (part if isinstance(part, list) else [part])]
    found = [found] if isinstance(found, str | int | float) and not isinstance(found, bool) else found
    if not isinstance(found, list) or not all(isinstance(a, str | int | float) and str(a).strip() for a in found) or not found:
        raise DataError(f"{where}: {place} is {short(value)}; expected a text or a list of texts, none of them empty, at least one")
    return tuple(dict.fromkeys(str(a).strip() for a in found))


def _source(named: str, hints: tuple[str, ...]) -> str:
    """Return the set that a row is from: what the row says, or the file's name, or its folder's."""
    for name in (named, *([] if named else hints)):
        for word in re.split(r"[^a-z0-9]+", name.lower()):
            known = next((s for s in SOURCES if word == s or (len(word) > 5 and (word.startswith(s) or s.startswith(word)))), None)
            if known:
                return known
    return named.rpartition("/")[2] or hints[0]


def _split_of(names: Iterable[str]) -> str:
    """Return the first split that is a word of one of the names, or ''."""
    return next((word for name in names for word in re.split(r"[^a-z]+", name.lower()) if word in _SPLITS), "")


def _split(name: str) -> str:
    """Return the name of a split, the same for all of its spellings."""
    word = _split_of((name,))  # a hub's slice, `train[:10]`, is of train
    return _SPLITS.get(word, name)
