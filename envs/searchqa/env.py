"""Search-QA: answer questions by searching a corpus, in the protocol of Search-R1 or by tool calls. Built on ToolEnv like anybody's own."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import agentgym
from agentgym.env import only
from agentgym.errors import ConfigError, EnvError, did_you_mean
from agentgym.task_file import Rows, read_rows
from agentgym.toolcall import CallError
from agentgym.tools import run_async

from . import data as loaders
from . import factbook, scoring
from .client import Client, Dialect
from .corpus import Hit
from .index import FACTBOOK, Retriever, open_retriever
from .solver import Solver

Reward = Literal["em", "sub_em", "f1", "format"]
Protocol = Literal["tags", "tool_call"]
MANY = 100_000  # documents above which a search takes long enough to deserve a thread of its own

PROMPT = """Answer the question below. Reason inside <think> and </think> whenever you have learned something new. If you miss a fact, write \
<search> your query </search>: the best documents come back between <information> and </information>. You can search up to {searches} times. As \
soon as you know enough, write the answer inside <answer> and </answer>: only the name, date or number that was asked for, without a sentence."""


class SearchQAEnv(agentgym.ToolEnv):
    """Questions over a corpus: search, read, answer.

    data          None: the embedded questions over the CIA World Factbook; else a file (FlashRAG, Search-R1, verl-agent, NQ, HotpotQA rows, see
                  data.py), "hub:owner/name", or a map split → file or files
    corpus        None: the embedded one; else a file (JSON lines, JSON, parquet; indexed once), or the address(es) of search servers
    dialect       what the servers speak: search_r1 | single | flashrag
    kind          index of a corpus file: bm25, or dense (extra `dense`)
    protocol      tags: `<search>`, `<information>`, `<answer>` as in Search-R1 (arXiv 2503.09516); tool_call: Hermes/Qwen tool calls
    topk          documents per search
    searches      at most so many; one more completion is left for the answer
    max_chars     characters of the documents that one search shows; every document is cut alike, closing tags always stay
    reward        em | sub_em | f1, or format (Search-R1 v0.3, arXiv 2505.15117; tags only). Scored on what the policy wrote, nothing else.
                  `success` is always the exact match
    hops          embedded questions: how many searches they take, of 1, 2, 3
    words         embedded corpus: words per document (None: about 100); the lines that questions ask for always stay
    asked         embedded corpus: only the documents that some question needs
    limit         only the first so many questions of the split (embedded ones stand in a fixed random order), or a map split → so many

    info["state"] is what the policy knows: the question and the set of documents seen, whatever the queries were.
    """

    success_at = 1.0

    def __init__(
        self,
        *,
        data: str | Mapping[str, Any] | None = None,
        corpus: str | Sequence[str] | None = None,
        dialect: Dialect = "search_r1",
        kind: Literal["bm25", "dense"] = "bm25",
        split: str = "train",
        protocol: Protocol = "tags",
        topk: int = 3,
        searches: int = 4,
        max_chars: int = 2_500,
        reward: Reward = "em",
        hops: Sequence[int] = (1, 2, 3),
        words: int | None = None,
        asked: bool = False,
        limit: int | Mapping[str, int] | None = None,
        instructions: bool | str = True,
        format: str | Mapping[str, Any] | None = None,
    ) -> None:
        choices = (("reward", reward, get_args(Reward)), ("protocol", protocol, get_args(Protocol)), ("kind", kind, ("bm25", "dense")))
        for name, value, allowed in choices:
            if value not in allowed:
                raise ConfigError(f"searchqa: {name} is {value!r}.{did_you_mean(str(value), allowed)} Allowed: {', '.join(allowed)}")
        if reward == "format" and protocol != "tags":
            raise ConfigError("searchqa: reward 'format' looks at the tags of protocol 'tags'; use em, sub_em or f1 with tool calls")
        limit = limit.get(split) if isinstance(limit, Mapping) else limit
        if min(topk, searches, max_chars, 1 if limit is None else limit) < 1:
            raise ConfigError(f"searchqa: topk={topk}, searches={searches}, max_chars={max_chars}, limit={limit}; all are at least 1")
        if data is not None and corpus is None:
            raise ConfigError("searchqa: questions of your own need a corpus: corpus=FILE.jsonl, or the address of a search server")
        only("searchqa", "the embedded corpus", corpus is None or corpus == FACTBOOK, words=words, asked=asked or None)
        only("searchqa", "the embedded questions", data is None, hops=None if tuple(hops) == (1, 2, 3) else hops)
        served = _served(corpus)
        only("searchqa", "search servers (corpus=http://…)", served, dialect=None if dialect == "search_r1" else dialect)
        only("searchqa", "a corpus that is indexed here", not served, kind=None if kind == "bm25" else kind)
        self.given: str | None = None  # the answer
        self.hits: list[Hit] = []  # of the last search
        self._questions = (json.dumps(data, sort_keys=True), tuple(hops), limit)
        self._corpus = (_hashable(corpus), dialect, kind, words, asked)
        self.protocol, self.topk, self.searches, self.max_chars, self.reward = protocol, topk, searches, max_chars, reward
        if instructions is True and protocol == "tags":
            instructions = PROMPT.format(searches=searches)
        form = format if format is not None else {"tags": "tags", "tool_call": {"name": "hermes", "parallel": False}}[protocol]
        super().__init__(split=split, format=form, max_steps=searches + 1, max_calls=1, instructions=instructions)
        self.blocking = isinstance(self._source, Client) or len(self._source) > MANY

    # -- tools ----------------------------------------------------------------------------------------------------------------------------

    @agentgym.tool(timeout=None)
    def search(self, query: str) -> str:
        """Search the corpus. Returns the best documents.

        Args:
            query: a few words that the document should contain
        """
        if not query.strip():
            raise CallError("The query is empty: say what to look for.")
        if self.searched == self.searches:
            raise CallError(f"All {self.searches} searches are used up: give the answer now.")
        self.searched += 1
        self.hits = self._look_up(query)
        self.seen |= {h.document.id for h in self.hits}
        return self._shown(self.hits)

    @agentgym.tool(final=True, timeout=None)
    def answer(self, text: str) -> str:
        """Give the final answer. This ends the episode.

        Args:
            text: only the name, date or number that was asked for
        """
        self.given = text
        return text

    # -- the episode ----------------------------------------------------------------------------------------------------------------------

    def load_tasks(self, split: str) -> Rows:
        """Return the questions of a split; read once per process."""
        return _rows(self._questions, split)

    def setup(self, task: Mapping[str, Any]) -> str:
        """Begin with the question."""
        self.searched = 0
        self.given, self.hits = None, []
        self.seen: set[str] = set()
        self.written: list[str] = []
        return f"Question: {task['question']}"

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Search or answer; see ToolEnv."""
        if self._running:
            self.written.append(action)
        return super().step(action)

    def score(self) -> dict[str, float]:  # type: ignore[override]
        """Return the reward of the episode; without an answer it is 0, except for the form."""
        golds, said = self.task["answers"], self.given or ""
        exact = scoring.exact_match(said, golds)
        if self.reward == "format":
            return {"format": scoring.format_reward(self.written, golds), "success": exact}
        value = {"em": exact, "sub_em": scoring.sub_exact_match(said, golds), "f1": scoring.f1(said, golds)}[self.reward]
        return {self.reward: value, "success": exact}

    def state_key(self) -> str:
        """Return what the policy knows: different queries that found the same documents meet in one group."""
        return hashlib.sha256(json.dumps([self.task_id, sorted(self.seen), self.given is not None]).encode("utf-8", "surrogatepass")).hexdigest()

    def demonstrate(self) -> Generator[tuple[str, dict[str, Any]], str, None]:
        """Answer an embedded question hop by hop."""
        if "chain" not in self.task:
            raise EnvError("searchqa: only the embedded questions come with a plan for the expert; use another policy for these data")
        solver = Solver(self.task["chain"])
        found: list[list[str]] = []
        while True:
            kind, text = solver.next(found)
            yield kind, {"query" if kind == "search" else "text": text}
            found.append([h.document.contents for h in self.hits])

    # -- inside ---------------------------------------------------------------------------------------------------------------------------

    @property
    def _source(self) -> Client | Retriever:
        return _open(*self._corpus)

    def _look_up(self, query: str) -> list[Hit]:
        source = self._source
        if isinstance(source, Client):
            return run_async(source.search([query], self.topk))[0]
        return source.search([query], self.topk)[0]

    def _shown(self, hits: Sequence[Hit]) -> str:
        """Return the documents as the model reads them, at most `max_chars` characters of them."""
        if not hits:
            return "Nothing was found."
        room = max(1, self.max_chars // len(hits))
        texts = [f"(Title: {h.document.title}) {h.document.text}" for h in hits]
        return "\n".join(f"Doc {i}{t if len(t) <= room else t[:room] + ' …'}" for i, t in enumerate(texts, 1))


def _hashable(corpus: str | Sequence[str] | None) -> Any:
    return corpus if corpus is None or isinstance(corpus, str) else tuple(corpus)


def _served(corpus: str | Sequence[str] | None) -> bool:
    """Return whether a corpus is the address of a server, or several."""
    servers = [corpus] if isinstance(corpus, str) else corpus or ()
    return bool(servers) and all(s.startswith(("http://", "https://")) for s in servers)


@functools.lru_cache(maxsize=16)
def _open(corpus: Any, dialect: Dialect, kind: str, words: int | None, asked: bool) -> Client | Retriever:
    """Return what answers the queries: one for all environments of this process."""
    if _served(corpus):
        return Client(corpus, dialect=dialect)
    if corpus not in (None, FACTBOOK):
        if not isinstance(corpus, str):
            raise ConfigError(f"searchqa: corpus is one file, or addresses of servers (http://…); got {corpus!r}")
        return open_retriever(str(Path(corpus).expanduser()), kind)
    return open_retriever(FACTBOOK, kind, words=words, asked=asked)


@functools.lru_cache(maxsize=16)
def _rows(questions: tuple[str, tuple[int, ...], int | None], split: str) -> Rows:
    """Return the tasks of a split. Each keeps its data set as its type, so that evaluation reports them apart."""
    data, hops, limit = json.loads(questions[0]), questions[1], questions[2]
    if data is None:
        found = factbook.questions(split=split, hops=hops)[:limit]
        return read_rows([_row(q, f"{q.extra['hops']}-hop", split) | {"chain": q.extra["chain"]} for q in found], None, "factbook")
    if isinstance(data, Mapping):
        if split not in data:
            raise ConfigError(f"searchqa: data has no split {split!r}.{did_you_mean(split, data)} It has: {', '.join(data)}")
        files = [data[split]] if isinstance(data[split], str) else data[split]
        found = [q for f in files for q in loaders.load(f, limit=limit)]
    else:
        found = loaders.load(data, split=split, limit=limit)
    return read_rows([_row(q, q.source, split) for q in found], None, str(data))


def _row(q: loaders.Question, kind: str, split: str) -> dict[str, Any]:
    return {"id": q.id, "split": split, "question": q.question, "answers": list(q.answers), "source": q.source, "type": kind}
