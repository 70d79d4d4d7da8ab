"""Our search server beside a plain one that searches one query after the other, as Search-R1's server does: queries per CPU second of the server.

    python tests/bench/bench_search.py [--documents 10000 100000] [--out FILE.json]

The plain server is bm25s as its own pages use it, `retrieve` for one query after the other, behind the same web framework. Ours has the same
bm25s inside, but tokenises a request at once, remembers stems, and looks for the best only among the documents that hold a word. Both run as
processes of their own on the same made-up documents (words by Zipf's law, about 60 a document) and answer the same queries in turns; their CPU
seconds, connections and JSON included, are read from /proc, so this needs Linux. What the questioner costs is not counted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

OURS = "import sys; from agentgym.envs.searchqa.server import serve; serve(sys.argv[1], port=0)"
PLAIN = """
import json, socket, sys
import bm25s, Stemmer, uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route
documents = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
stem = Stemmer.Stemmer("porter")
def tokens(texts): return bm25s.tokenize(texts, stopwords="en", stemmer=stem, show_progress=False)
index = bm25s.BM25(k1=0.9, b=0.4)
index.index(tokens([d["contents"] for d in documents]), show_progress=False)
def search(queries, topk):
    out = []
    for query in queries:
        rows, scores = index.retrieve(tokens([query]), k=topk, show_progress=False)
        out.append([{"document": documents[i], "score": float(s)} for i, s in zip(rows[0], scores[0])])
    return out
async def retrieve(request):
    asked = await request.json()
    return JSONResponse({"result": await run_in_threadpool(search, asked["queries"], asked["topk"])})
listener = socket.create_server(("127.0.0.1", 0))
print(f"on http://127.0.0.1:{listener.getsockname()[1]}:", flush=True)
uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/retrieve", retrieve, methods=["POST"])]), log_level="warning")).run([listener])
"""


def write_corpus(path: Path, documents: int, *, words: int = 60, vocabulary: int = 200_000, seed: int = 0) -> list[str]:
    """Write made-up documents; return the texts of 2,000 of them."""
    rng = np.random.default_rng(seed)
    chance = 1 / (np.arange(1, vocabulary + 1) + 30.0)  # the 30 commonest words would be stop words
    bounds = np.cumsum(chance / chance.sum())
    texts: list[str] = []
    with open(path, "w", encoding="utf-8") as f:
        for start in range(0, documents, 5000):
            drawn = np.searchsorted(bounds, rng.random((min(5000, documents - start), words)))
            for number, row in enumerate(drawn.tolist(), start=start):
                text = " ".join(f"w{i:x}" for i in row)
                f.write(json.dumps({"id": str(number), "contents": f'"Page {number}"\n{text}'}) + "\n")
                if number % max(1, documents // 2000) == 0:
                    texts.append(text)
    return texts


def make_queries(texts: list[str], n: int, *, words: int = 6, seed: int = 1) -> list[str]:
    """Return queries of words that occur together in a document."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(texts[rng.integers(len(texts))].split(), words)) for _ in range(n)]


class Server:
    """A server in a process of its own."""

    def __init__(self, code: str, corpus: Path, folder: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "AGENTGYM_CACHE": str(folder / "cache")}
        self._process = subprocess.Popen([sys.executable, "-c", code, str(corpus)], stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "http://" not in line:
            raise SystemExit(f"the server did not start: {line!r}")
        self.port = int(line.split("http://")[1].split(":")[1].split()[0].strip(":"))
        time.sleep(0.5)
        self.start_s = self.cpu()

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return its own memory in MB, mapped files not counted."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text("utf-8").splitlines()
        return sum(int(x.split()[1]) for x in lines if x.startswith("RssAnon")) / 1e3

    def ask(self, batches: list[list[str]]) -> None:
        """Send the batches over one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        for queries in batches:
            body = json.dumps({"queries": queries, "topk": 3, "return_scores": True})
            connection.request("POST", "/retrieve", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            assert answer.status == 200 and data.count(b'"score"') == 3 * len(queries), data[:200]
        connection.close()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def per_cpu_second(server: Server, queries: list[str], batch: int, connections: int) -> float:
    """Return how many queries the server answers in a second of its CPU."""
    batches = [queries[i : i + batch] for i in range(0, len(queries), batch)]
    shares = [batches[i::connections] for i in range(connections)]
    before = server.cpu()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(server.ask, shares))
    return len(queries) / (server.cpu() - before)


def measure(documents: int, repeat: int) -> dict[str, Any]:
    """Return the figures of both servers on a corpus of so many documents."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queries = make_queries(write_corpus(folder / "corpus.jsonl", documents), 6400)
        kinds = {"ours": OURS, "plain": PLAIN}
        servers = {kind: Server(code, folder / "corpus.jsonl", folder) for kind, code in kinds.items()}
        figures: dict[str, Any] = {kind: {"start, index included, CPU s": s.start_s} for kind, s in servers.items()}
        try:
            for s in servers.values():
                s.ask([queries[:64]])  # warm
            for what, batch, connections in (("single", 1, 8), ("batch 64", 64, 1)):
                runs: dict[str, list[float]] = {kind: [] for kind in servers}
                for _ in range(repeat):
                    for kind, s in servers.items():
                        some = queries if kind == "ours" or documents <= 20_000 else queries[:640]
                        runs[kind].append(per_cpu_second(s, some, batch, connections))
                for kind, values in runs.items():
                    figures[kind][f"{what}, queries per CPU s"] = statistics.median(values)
            for kind, s in servers.items():
                figures[kind]["memory, MB"] = s.memory()
        finally:
            for s in servers.values():
                s.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"goals": []}
    for documents in options.documents:
        found = result[f"{documents:,} documents"] = measure(documents, options.repeat)
        for what, ours in found["ours"].items():
            plain = found["plain"][what]
            print(f"{documents:>9,} documents  {what:<32} ours {ours:>9,.1f}   plain {plain:>9,.1f}   ours/plain {ours / plain:.2f}", flush=True)
        if documents == 10_000:
            value = found["ours"]["batch 64, queries per CPU s"]
            what = "search server, queries per CPU second, 10k documents, batch 64"
            result["goals"].append({"what": what, "value": f"{value:,.0f}", "goal": ">= 2,500", "met": value >= 2500})
    for goal in result["goals"]:
        print(f"{goal['what']}: {goal['value']} (goal {goal['goal']}: {'met' if goal['met'] else 'not met'})")
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
