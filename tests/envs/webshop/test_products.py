"""Reading the official files, and keeping a catalogue on disk."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.envs.webshop import catalogue as catalogues
from agentgym.envs.webshop.products import find_files, prices, read
from agentgym.envs.webshop.types import Product, Wish
from agentgym.errors import DataError


@pytest.mark.parametrize(
    ("pricing", "found", "shown"),
    [
        ("$877.80", (877.8,), "$877.8"),
        ("$19.99 - $27.99", (19.99, 27.99), "$19.99 to $27.99"),
        ("$1,099.95", (1099.95,), "$1099.95"),
        ("$5 $6 $7", (5.0, 6.0), "$5.0 to $6.0"),
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("free", (100.0,), "$100.0"),
        ("$1.2.3", (100.0,), "$100.0"),
    ],
)
def test_prices(pricing: str | None, found: tuple[float, ...], shown: str) -> None:
    assert prices(pricing) == found and Product("B0", "p", prices=found).price_text == shown


def item(asin: str, **changes: Any) -> dict[str, Any]:
    base = {"asin": asin, "name": f"Name {asin}", "category": "c", "query": " Some Query ", "product_category": "A › B", "pricing": "$5"}
    more = {"images": ["http://i/1.jpg"], "full_description": "D", "small_description": ["one", "two"], "customization_options": ""}
    return base | more | changes


def write(folder: Path, items: Any, ins: Any = None, human: Any = None, suffix: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"items_shuffle{suffix}.json").write_text(items if isinstance(items, str) else json.dumps(items))
    for name, content in ((f"items_ins_v2{suffix}.json", ins), ("items_human_ins.json", human)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    return folder


def test_what_is_read(tmp_path: Path) -> None:
    options = {"Color": [{"value": " Red/Blue "}, {"value": "TAN", "image": "x"}], "Size": None}
    items = [item("A", customization_options=options), item("nan"), item("A"), item("12345678901"), item("B", small_description="one", images=[])]
    ins = {"A": {"attributes": ["soft"], "instruction": "Find me A", "instruction_attributes": ["soft"]}, "B": {"attributes": []}}
    human = {"A": [{"instruction": "get a.", "instruction_attributes": ["soft"], "instruction_options": ["Tan"]}] * 2}
    human["A"].append({"instruction": "no attribute", "instruction_attributes": [], "instruction_options": []})
    a, b = read(write(tmp_path, items, ins, human), progress=False)
    assert a.options == {"color": ("red | blue", "tan")} and a.query == "some query" and a.bullets == ("one", "two")
    assert a.attributes == a.template_attributes == ("soft",) and a.template == "Find me A" and a.image == "http://i/1.jpg"
    assert a.wishes == (Wish("get a", ("soft",), ("Tan",)),) * 2
    assert a.text == "name a d one color: red | blue, tan"
    assert (b.bullets, b.attributes, b.template, b.wishes, b.image) == (("one",), (), None, (), "")
    (only,) = read(write(tmp_path / "x", [item("C")]), progress=False)
    assert only.attributes == ("DUMMY_ATTR",)
    assert [p.asin for p in read(tmp_path, 1, progress=False)] == ["A"]


def test_which_files_are_taken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist; it should hold items_shuffle\.json"):
        find_files(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no items_shuffle\*.json"):
        find_files(tmp_path)
    write(tmp_path, [], {}, suffix="_1000")
    assert find_files(tmp_path).items.name == find_files(tmp_path, 7).items.name == "items_shuffle_1000.json"
    write(tmp_path, [], {})
    assert find_files(tmp_path).items.name == "items_shuffle.json" and find_files(tmp_path, 1000).items.name == "items_shuffle_1000.json"
    found = find_files(tmp_path, 1000)
    assert found.ins is not None and found.ins.name == "items_ins_v2_1000.json" and found.human is None and len(found.all()) == 2


@pytest.mark.parametrize(
    ("items", "ins", "human", "said"),
    [
        ('[{"asin": "A"', None, None, r"items_shuffle.json: damaged JSON near byte"),
        ([{"asin": "A"}], None, None, r"item 0 is no product \(KeyError: 'small_description'\); it has the keys asin"),
        ([7], None, None, r"item 0 is no product .*none: it is a int"),
        ([item("A")], {"A": {"instruction": "x"}}, None, r"the instruction of A has no instruction_attributes"),
        ([item("A")], None, {"A": [{"instruction": "x"}]}, r"items_human_ins.json: not what WebShop's human instructions look like"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, items: Any, ins: Any, human: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        list(read(write(tmp_path, items, ins, human), progress=False))


def test_the_real_small_set(webshop_data: Path) -> None:
    found = list(read(webshop_data, 1000, progress=False))
    assert len(found) == 1000 and sum(p.template is not None for p in found) == 415 and sum(len(p.wishes) for p in found) == 13
    assert sum(len(p.prices) == 2 for p in found) == 93


def test_a_catalogue_gives_back_what_was_put_in(tmp_path: Path, webshop_data: Path) -> None:
    found = list(read(webshop_data, 1000, progress=False))
    catalogue = catalogues.open_files(webshop_data, 1000)
    assert list(catalogue) == found and catalogue.product(17) == found[17] and catalogue.product(17) is catalogue.product(17)
    assert all(catalogue.row(p.asin) == row for row, p in enumerate(found))
    assert [catalogue.row(a) for a in ("", "B06Y3VLDF", "ZZZZZZZZZZ", "öäü", "B06Y3VLDFBX", "\0")] == [None] * 6
    assert catalogues.open_files(webshop_data, 1000) is catalogue
    for facet, of in (("category", lambda p: [p.category]), ("query", lambda p: [p.query]), ("attribute", lambda p: p.attributes)):
        for value in {v for p in found[::50] for v in of(p)}:
            assert catalogue.having(facet, value).tolist() == [row for row, p in enumerate(found) if value in of(p)]
        assert catalogue.having(facet, "nothing such").tolist() == []
    assert isinstance(catalogue._records.base, np.memmap) and isinstance(catalogue.offsets.base, np.memmap)


def test_other_bytes_are_another_catalogue(tmp_path: Path) -> None:
    one = catalogues.open_files(write(tmp_path, [item("A"), item("B")]), None, progress=False)
    two = catalogues.open_files(write(tmp_path, [item("A"), item("C")]), None, progress=False)
    first = catalogues.open_files(tmp_path, 1, progress=False)
    assert [[p.asin for p in c] for c in (one, two, first)] == [["A", "B"], ["A", "C"], ["A"]]


def test_a_damaged_catalogue_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [item("A"), item("B")])
    folder = catalogues.open_files(tmp_path, None, progress=False).folder
    (folder / "products.bin").write_bytes(b"{}")
    monkeypatch.setattr(catalogues, "_open_now", {})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [p.asin for p in catalogues.open_files(tmp_path, None, progress=False)] == ["A", "B"]
    assert any("building it again" in str(w.message) for w in said)


def _asins(data: Path) -> list[str]:
    return [p.asin for p in catalogues.open_files(data, None, progress=False)]


def test_processes_that_build_at_the_same_time(tmp_path: Path) -> None:
    write(tmp_path, [item(f"A{i}") for i in range(300)])
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, two = pool.map(_asins, [tmp_path, tmp_path])
    assert one == two == [f"A{i}" for i in range(300)]
