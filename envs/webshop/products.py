"""Read WebShop's official files, one product at a time: items_shuffle*.json, items_ins_v2*.json, items_human_ins.json."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.errors import ConfigError, DataError
from agentgym.progress import shown

from .types import Product, Wish

EXPECTED = "items_shuffle.json and items_ins_v2.json (or the small set: items_shuffle_1000.json and items_ins_v2_1000.json), and items_human_ins.json"
_NO_PRICE = (100.0,)


@dataclass(frozen=True)
class Files:
    """The files of a data folder. `ins` and `human` may be missing: there are no such goals then."""

    items: Path
    ins: Path | None
    human: Path | None

    def all(self) -> list[Path]:
        """Return those that are there."""
        return [f for f in (self.items, self.ins, self.human) if f is not None]


def find_files(data: Path, products: int | None = None) -> Files:
    """Return the files of a folder: the small set `items_shuffle_N.json` where it has exactly the `products` that are wanted, else the full one.

    Raises DataError where there is none.
    """
    if not data.is_dir():
        raise DataError(f"webshop: the data folder {data} does not exist; it should hold {EXPECTED}")
    small = sorted(data.glob("items_shuffle_*.json"))
    full = data / "items_shuffle.json"
    exact = data / f"items_shuffle_{products}.json"
    items = exact if exact in small else full if full.is_file() else small[0] if small else None
    if items is None:
        raise DataError(f"webshop: no items_shuffle*.json in {data}; it should hold {EXPECTED}")
    suffix = items.name.removeprefix("items_shuffle")
    ins = next((f for f in (data / f"items_ins_v2{suffix}", data / "items_ins_v2.json") if f.is_file()), None)
    human = data / "items_human_ins.json"
    return Files(items, ins, human if human.is_file() else None)


def read(data: Path, products: int | None = None, progress: bool = True) -> Iterator[Product]:
    """Yield the products of a folder in the order of its file, at most `products` of them, in bounded memory.

    Left out, as in the original: an asin that is `nan`, longer than 10 characters, or seen before. Raises DataError for a damaged file.
    """
    files = find_files(data, products)
    seen: set[str] = set()
    with _instructions(files.ins, progress) as instruction, _objects(files.items, "item", f"{files.items.name}: reading", progress) as items:
        wishes = _wishes(files.human)
        for number, item in enumerate(items):
            if products is not None and len(seen) == products:
                return
            try:
                asin = item["asin"]
                if asin == "nan" or len(asin) > 10 or asin in seen:
                    continue
                seen.add(asin)
                yield _product(item, instruction(asin), wishes.get(asin, ()))
            except (KeyError, TypeError, AttributeError, ValueError) as e:
                raise DataError(f"{files.items}: item {number} is no product ({type(e).__name__}: {e}); it has the keys {_keys(item)}") from e


def _product(item: Mapping[str, Any], ins: Mapping[str, Any], wishes: tuple[Wish, ...]) -> Product:
    bullets = item["small_description"]
    template = ins.get("instruction")
    attributes = ins.get("instruction_attributes") or ()
    if template is not None and not attributes:
        raise ValueError(f"the instruction of {item['asin']} has no instruction_attributes")
    return Product(
        asin=item["asin"],
        name=item["name"],
        category=item["category"],
        query=item["query"].lower().strip(),
        product_category=item["product_category"],
        prices=prices(item["pricing"]),
        description=item["full_description"],
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
        image=(item["images"] or [""])[0],
        options={name.lower(): _values(found) for name, found in (item["customization_options"] or {}).items() if found is not None},
        attributes=tuple(ins.get("attributes", ("DUMMY_ATTR",))),
        template=template,
        template_attributes=tuple(attributes) if template is not None else (),
        wishes=wishes,
    )


def _values(found: list[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(v["value"].strip().replace("/", " | ").lower() for v in found)


def prices(pricing: str | None) -> tuple[float, ...]:
    """Return the one or two amounts that a price text such as "$19.99 - $27.99" names; (100.0,) where it names none."""
    found = [re.sub(r"[^\d.]", "", part) for part in (pricing or "").split("$")[1:]]
    amounts = []
    for digits in found:
        with contextlib.suppress(ValueError):
            amounts.append(float(digits))
    return tuple(amounts[:2]) or _NO_PRICE


def _wishes(file: Path | None) -> dict[str, tuple[Wish, ...]]:
    """Return the instructions that people wrote, by asin; those that name no attribute are left out, as in the original."""
    if file is None:
        return {}
    try:
        found = json.loads(file.read_bytes())
        return {
            asin: tuple(
                Wish(w["instruction"].strip("."), tuple(w["instruction_attributes"]), tuple(w["instruction_options"]))
                for w in rows
                if w["instruction_attributes"]
            )
            for asin, rows in found.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise DataError(f"{file}: not what WebShop's human instructions look like ({type(e).__name__}: {e}); expected {_HUMAN}") from e


_HUMAN = '{"ASIN": [{"instruction": "…", "instruction_attributes": ["…"], "instruction_options": ["…"]}]}'


@contextlib.contextmanager
def _instructions(file: Path | None, progress: bool) -> Iterator[Callable[[str], Mapping[str, Any]]]:
    """Yield a function asin → attributes and synthetic instruction. They wait on disk: a million of them take a gigabyte as Python objects."""
    if file is None:
        yield lambda asin: {}
        return
    with tempfile.TemporaryDirectory() as tmp, contextlib.closing(sqlite3.connect(f"{tmp}/ins.db", isolation_level=None)) as db:
        db.executescript("pragma journal_mode=off; pragma synchronous=off; create table ins (asin text primary key, body text) without rowid")
        with _objects(file, "", f"{file.name}: reading", progress) as rows:
            db.execute("begin")
            db.executemany("insert or replace into ins values (?, ?)", ((asin, json.dumps(body)) for asin, body in rows))
            db.execute("commit")

        def find(asin: str) -> Mapping[str, Any]:
            found = db.execute("select body from ins where asin = ?", (asin,)).fetchone()
            return json.loads(found[0]) if found else {}

        yield find


@contextlib.contextmanager
def _objects(file: Path, prefix: str, what: str, progress: bool) -> Iterator[Iterator[Any]]:
    """Yield the objects of a huge JSON file one by one: the items of its list, or (key, value) of its object where `prefix` is ""."""
    try:
        import ijson
    except ImportError as e:
        raise ConfigError("webshop: the official files are read with the package ijson: pip install 'agentgym[webshop]'") from e
    with open(file, "rb") as raw, shown(what, file.stat().st_size, progress) as advance:

        def each() -> Iterator[Any]:
            at = 0
            try:
                for number, found in enumerate(ijson.items(raw, prefix, use_float=True) if prefix else ijson.kvitems(raw, "", use_float=True)):
                    yield found
                    if number % 1000 == 999:
                        advance(raw.tell() - at)
                        at = raw.tell()
            except (ijson.JSONError, UnicodeDecodeError) as e:
                raise DataError(f"{file}: damaged JSON near byte {raw.tell():,} ({e}); load the file again") from e

        yield each()


def _keys(item: Any) -> str:
    return ", ".join(item) if isinstance(item, dict) else f"none: it is a {type(item).__name__}"
