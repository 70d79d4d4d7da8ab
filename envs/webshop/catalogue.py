"""Products on disk with their search index: built once, then mapped into memory, so that any number of environments and processes share them."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.cache import built_once, cache_dir, digest
from agentgym.errors import ConfigError

from . import index
from .products import EXPECTED, find_files, read
from .types import Product, Wish

try:
    import orjson
except ImportError as e:
    raise ConfigError(f"webshop needs further packages ({e}): pip install 'agentgym[webshop]'") from e

_FORMAT = 1
_KEPT = 4096  # products that a process remembers
FACETS = ("category", "query", "attribute")


class Catalogue:
    """The products of a folder that `build` made.

    Arrays over products, mapped: `low`, `high` (dollars), `templates` (rows with a synthetic instruction), `combinations` (how many goals each
    of those makes), `wishes` (rows of products with written instructions, one entry per instruction), `bucket` (0 to 99, a hash of the asin).
    """

    def __init__(self, folder: Path) -> None:
        """Map the files. Raises ValueError or OSError where they are not whole."""
        self.folder = folder
        self.meta: dict[str, Any] = json.loads((folder / "meta.json").read_bytes())
        if self.meta["format"] != _FORMAT:
            raise ValueError(f"format {self.meta['format']}, expected {_FORMAT}")
        self.index = index.Index(folder / "index")
        self._records = _mapped(folder / "products.bin")
        for name in ("offsets", "asins", "order", "low", "high", "templates", "combinations", "wishes", "bucket"):
            setattr(self, name, np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")))
        if len(self.index) != len(self) or self.offsets[-1] != len(self._records):
            raise ValueError(f"{len(self)} products, {len(self.index)} indexed, {len(self._records)} bytes")
        self._facets: dict[str, dict[str, tuple[int, int]]] = {}  # read when somebody asks for one
        self.product = functools.lru_cache(maxsize=_KEPT)(self._product)

    low: np.ndarray
    high: np.ndarray
    offsets: np.ndarray
    asins: np.ndarray
    order: np.ndarray
    templates: np.ndarray
    combinations: np.ndarray
    wishes: np.ndarray
    bucket: np.ndarray

    def __len__(self) -> int:
        return len(self.asins)

    def __iter__(self) -> Iterator[Product]:
        return (self._product(row) for row in range(len(self)))

    def _product(self, row: int) -> Product:
        """Return the product of a row."""
        found = orjson.loads(self._records[self.offsets[row] : self.offsets[row + 1]].tobytes())
        for name in ("prices", "bullets", "attributes", "template_attributes"):
            found[name] = tuple(found[name])
        found["options"] = {name: tuple(values) for name, values in found["options"].items()}
        found["wishes"] = tuple(Wish(w["text"], tuple(w["attributes"]), tuple(w["options"])) for w in found["wishes"])
        found["nouns"] = None if found["nouns"] is None else tuple(found["nouns"])
        return Product(**found)

    def row(self, asin: str) -> int | None:
        """Return the row of an asin, None where there is no such product."""
        try:
            wanted = np.bytes_(asin.encode("ascii"))
        except UnicodeEncodeError:
            return None
        at = int(np.searchsorted(self.asins, wanted, sorter=self.order))
        row = int(self.order[at]) if at < len(self) else -1
        return row if row >= 0 and self.asins[row] == wanted else None

    def having(self, facet: str, value: str) -> np.ndarray:
        """Return the rows of all products of a category, query or attribute, in the order of the catalogue."""
        if facet not in self._facets:
            values = json.loads((self.folder / f"{facet}.json").read_bytes())
            ends = np.load(self.folder / f"{facet}.npy")
            self._facets[facet] = {v: (int(ends[i]), int(ends[i + 1])) for i, v in enumerate(values)}
        start, end = self._facets[facet].get(value, (0, 0))
        return _mapped(self.folder / f"{facet}.rows", np.int32)[start:end]


def _mapped(file: Path, dtype: Any = np.uint8) -> np.ndarray:
    """Return a file's contents without reading them (an empty file cannot be mapped)."""
    return np.asarray(np.memmap(file, dtype, "r")) if file.stat().st_size else np.zeros(0, dtype)


def build(products: Iterable[Product], folder: Path, *, total: int | None = None, progress: bool = True) -> None:
    """Write products and their index to a folder; they are read once, and not held in memory."""
    writer = _Writer(folder)
    (folder / "index").mkdir()
    index.build(writer.each(products), folder / "index", total=total, progress=progress)
    writer.finish()


class _Writer:
    """Writes products as they pass on their way to the index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets, self.low, self.high = array("q", [0]), array("d"), array("d")
        self.templates, self.combinations, self.wishes, self.bucket = array("i"), array("q"), array("i"), array("B")
        self.asins: list[bytes] = []
        self.facets: dict[str, dict[str, array[int]]] = {name: {} for name in FACETS}

    def each(self, products: Iterable[Product]) -> Iterator[tuple[str, str]]:
        """Yield (asin, text to index)."""
        with open(self.folder / "products.bin", "wb") as out:
            for row, product in enumerate(products):
                record = orjson.dumps(product, default=dict)
                out.write(record)
                self.offsets.append(self.offsets[-1] + len(record))
                self._note(row, product)
                yield product.asin, product.text

    def _note(self, row: int, product: Product) -> None:
        self.asins.append(product.asin.encode("ascii"))
        self.bucket.append(bucket(product.asin))
        self.low.append(product.prices[0])
        self.high.append(product.prices[-1])
        if product.template is not None:
            self.templates.append(row)
            self.combinations.append(functools.reduce(lambda n, values: n * len(values), product.options.values(), 1))
        self.wishes.extend([row] * len(product.wishes))
        for facet, values in (("category", {product.category}), ("query", {product.query}), ("attribute", set(product.attributes))):
            for value in values:
                self.facets[facet].setdefault(value, array("i")).append(row)

    def finish(self) -> None:
        """Write what was noted."""
        asins = np.array(self.asins, "S10")
        arrays = {"offsets": np.array(self.offsets, np.int64), "asins": asins, "order": np.argsort(asins, kind="stable").astype(np.int32)}
        arrays |= {name: np.array(getattr(self, name)) for name in ("low", "high", "templates", "combinations", "wishes", "bucket")}
        for name, values in arrays.items():
            np.save(self.folder / f"{name}.npy", values)
        for facet, found in self.facets.items():
            with open(self.folder / f"{facet}.rows", "wb") as out:
                for rows in found.values():
                    rows.tofile(out)
            np.save(self.folder / f"{facet}.npy", np.cumsum([0, *map(len, found.values())], dtype=np.int64))
            (self.folder / f"{facet}.json").write_text(json.dumps(list(found)), "utf-8")
        (self.folder / "meta.json").write_text(json.dumps({"format": _FORMAT, "products": len(asins)}), "utf-8")


def bucket(asin: str) -> int:
    """Return 0 to 99: which hundredth of all products an asin belongs to, wherever it stands in a file."""
    return int.from_bytes(hashlib.blake2b(asin.encode(), digest_size=8).digest(), "big") % 100


def open_files(data: Path, products: int | None, *, progress: bool = True) -> Catalogue:
    """Return the catalogue of a folder of official files; built now if that was never done for these bytes.

    Raises DataError for files that are missing or damaged.
    """
    files = find_files(data, products)
    key = [digest(f, progress, what="webshop's file", expected=EXPECTED) for f in files.all()]
    return _open(["files", *key, products], f"{files.items.name}", lambda: read(data, products, progress), products, progress)


def open_generated(n: int, size: str, seed: int = 0, *, progress: bool = True) -> Catalogue:
    """Return a generated catalogue of `n` products; built now if that was never done."""
    from .generate import VERSION, Generator

    made = Generator(n, seed=seed, size=size)  # type: ignore[arg-type]
    return _open(["generated", VERSION, n, size, seed], f"{n:,} generated products", lambda: iter(made), n, progress)


_open_now: dict[Path, Catalogue] = {}  # those of this process: environments share them


def _open(key: list[Any], name: str, products: Callable[[], Iterable[Product]], total: int | None, progress: bool) -> Catalogue:
    folder = cache_dir() / "webshop" / hashlib.sha256(json.dumps([*key, _FORMAT]).encode()).hexdigest()[:24]
    if folder not in _open_now:
        start = time.monotonic()
        damaged = (OSError, ValueError, KeyError, TypeError)
        _open_now[folder], new = built_once(
            folder, name, Catalogue, lambda new: build(products(), new, total=total, progress=progress), damaged=damaged
        )
        if new and progress and (seconds := time.monotonic() - start) > 2:
            said = f"a catalogue of {len(_open_now[folder]):,} products was built in {seconds:.0f} s, in {folder}"
            print(f"webshop: {name}: {said}", file=sys.stderr, flush=True)
    return _open_now[folder]
