"""The shop's search index beside bm25s, on made-up products: CPU seconds and memory of building, size, opening, and the latency of a query.

    python tests/bench/bench_webshop_index.py [--products 1000 20000] [--queries 300] [--alone] [--out FILE.json]

The texts have the length (lognormal, mean 124 words, one in seven a stop word) and the skew of the real 1,000 (a word's share falls as rank^-0.6
at first and as rank^-1.4 among the rare ones), of three million different words. Queries are 12 words of one product, stop words among them. Each
step runs in a process of its own, one after the other, and reads the same file; reading it is counted, making it is not. bm25s tokenises, stems and
searches with its own tools (its Lucene method, memory-mapped), as its pages show; it keeps the exact length, so its order is not WebShop's. --alone
leaves it out. Private memory is what the process itself holds once the index is open and has been searched, mapped files not counted (Linux).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _out import write

STOP = ("the", "and", "for", "with", "of", "to", "a", "is", "in", "it")
VOCABULARY = 3_000_000
SYLLABLES = [c + v for c in "bcdfghklmnprstvz" for v in "aeiou"]


def spelt(rank: int) -> str:
    """Return the word of a rank: two syllables for the 6,400 commonest, then three, then four."""
    rank += len(SYLLABLES)
    word = ""
    while rank:
        rank, syllable = divmod(rank, len(SYLLABLES))
        word = SYLLABLES[syllable] + word
    return word


def make(file: Path, products: int, queries: int, seed: int = 0) -> list[str]:
    """Write a file of made-up products, a text a line; return queries."""
    rng = np.random.default_rng(seed)
    rank = np.arange(VOCABULARY)
    share = np.cumsum((rank + 8.0) ** -0.6 * (1 + rank / 700) ** -0.8)
    words: dict[int, str] = {}
    asked: list[str] = []
    with open(file, "w", encoding="ascii") as f:
        for start in range(0, products, 1000):
            lengths = np.clip(rng.lognormal(4.5, 0.8, min(1000, products - start)), 12, 3000).astype(int)
            ranks = np.searchsorted(share, rng.random(lengths.sum()) * share[-1])
            ranks[rng.random(len(ranks)) < 1 / 7] -= VOCABULARY  # a stop word
            for row in np.split(ranks, np.cumsum(lengths)[:-1]):
                text = [words.get(i) or words.setdefault(i, spelt(i) if i >= 0 else STOP[i % len(STOP)]) for i in row.tolist()]
                f.write(" ".join(text) + "\n")
                if len(asked) < queries and rng.random() < 2 * queries / products:
                    asked.append(" ".join(rng.choice(text, 12)))
    return asked


def texts(file: Path) -> Iterator[tuple[str, str]]:
    with open(file, encoding="ascii") as f:
        yield from ((f"B{number:09d}", line) for number, line in enumerate(f))


def build_ours(file: Path, folder: Path) -> None:
    from agentgym.envs.webshop.index import build

    build(texts(file), folder, progress=False)


def open_ours(folder: Path) -> Callable[[str], object]:
    from agentgym.envs.webshop.index import Index

    return Index(folder).search


def build_bm25s(file: Path, folder: Path) -> None:
    import bm25s
    import Stemmer

    tokens = bm25s.tokenize([text for _, text in texts(file)], stopwords="en", stemmer=Stemmer.Stemmer("porter"), show_progress=False)
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    index.index(tokens, show_progress=False)
    index.save(folder, show_progress=False)


def open_bm25s(folder: Path) -> Callable[[str], object]:
    import bm25s
    import Stemmer

    index, stemmer = bm25s.BM25.load(folder, mmap=True, show_progress=False), Stemmer.Stemmer("porter")
    k = min(50, index.scores["num_docs"])
    return lambda query: index.retrieve(bm25s.tokenize([query], stopwords="en", stemmer=stemmer, show_progress=False), k=k, show_progress=False)


def resident(kind: str = "VmRSS") -> float:
    """Return this process's memory in MB; "RssAnon": without mapped files, "VmHWM": the most that it ever was."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return sum(int(x.split()[1]) for x in lines if x.startswith(kind)) / 1e3


def built(build: Callable[[Path, Path], None], file: Path, folder: Path) -> dict[str, float]:
    """Build an index; return what it took. Runs in a process of its own."""
    warm = folder.with_name("warm")
    warm.mkdir()
    build(first(file, 100), warm)  # the imports are not the build's
    before, start = resident(), time.process_time()
    build(file, folder)
    took, peak = time.process_time() - start, resident("VmHWM")
    size = sum(f.stat().st_size for f in folder.iterdir())
    return {"build, CPU s": took, "memory that the build adds at its peak, MB": peak - before, "size on disk, MB": size / 1e6}


def first(file: Path, lines: int) -> Path:
    """Return a file of the first lines of a file."""
    new = file.with_name("first.txt")
    with open(file, encoding="ascii") as f:
        new.write_text("".join(islice(f, lines)), "ascii")
    return new


def searched(opener: Callable[[Path], Callable[[str], object]], folder: Path, queries: list[str]) -> dict[str, float]:
    """Open an index and search it; return what that took. Runs in a process of its own."""
    opener(folder.with_name("warm"))
    before, start = resident("RssAnon"), time.perf_counter()
    search = opener(folder)
    opened = time.perf_counter() - start
    times: dict[bool, list[float]] = {True: [], False: []}
    for query in queries:
        for again in (False, True):
            start = time.process_time()
            search(query)
            times[again].append(1e3 * (time.process_time() - start))
    first, again = (statistics.median(times[key]) for key in (False, True))
    return {
        "opening, ms": 1e3 * opened,
        "private memory after the queries, MB": resident("RssAnon") - before,
        "a new query, CPU ms (median)": first,
        "the same again, CPU ms (median)": again,
        "the slowest of 100 new ones, CPU ms": float(np.percentile(times[False], 99)),
    }


def alone(work: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """Return what a function returns in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, args)


def measure(products: int, queries: int, kinds: dict[str, Any], repeat: int = 3) -> dict[str, dict[str, float]]:
    """Return the figures of each kind of index on so many products; the searches are done in turns, and their medians taken."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "products.txt"
        asked = make(file, products, queries)
        for kind, (build, _) in kinds.items():
            folder = Path(name) / kind / "index"
            folder.mkdir(parents=True)
            found[kind] = alone(built, build, file, folder)
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for _ in range(repeat):
            for kind, (_, opener) in kinds.items():
                runs[kind].append(alone(searched, opener, Path(name) / kind / "index", asked))
        for kind, figures in runs.items():
            found[kind] |= {what: statistics.median(run[what] for run in figures) for what in figures[0]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--products", type=int, nargs="+", default=[1000, 20_000])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--alone", action="store_true", help="without bm25s")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    kinds = {"ours": (build_ours, open_ours)} | ({} if options.alone else {"bm25s": (build_bm25s, open_bm25s)})
    result: dict[str, Any] = {}
    for products in options.products:
        found = measure(products, options.queries, kinds)
        if "bm25s" in found:
            found["ours/bm25s"] = {what: value / found["bm25s"][what] for what, value in found["ours"].items() if found["bm25s"][what]}
        result[f"{products:,} products"] = {kind: {what: round(value, 3) for what, value in figures.items()} for kind, figures in found.items()}
    write(result, options.out)


if __name__ == "__main__":
    main()
