"""The generated catalogue: the same everywhere, calibrated to the official products, true to itself, and nobody's words but ours."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.fuzz import token_set_ratio

from agentgym.envs.webshop.generate import Generator, Size
from agentgym.envs.webshop.types import Product
from agentgym.envs.webshop.words import Family, article, attribute, noun, titled
from agentgym.envs.webshop.words_values import BRANDS
from agentgym.envs.webshop.world import Full, Mini
from agentgym.errors import ConfigError

SIZES: tuple[Size, ...] = ("full", "mini")
N = 3000
PINNED = {  # of the first 200 products: raise generate.VERSION when these change
    "full": "b60d2b39169dfb03916baed2c21e9305364a95ef2c349ecca1556075b2e30a68",
    "mini": "a15f1dcce19b7387fa97948d45439c43b4eca3f121fa7ee9bc96b4700158e601",
}
CATEGORIES = {"fashion": 200, "beauty": 238, "electronics": 229, "garden": 216, "grocery": 117}  # of the official 1,000 products
DECILES = (9, 13, 16, 21, 29, 43, 75, 100, 199)  # of their prices, in dollars


@pytest.fixture(scope="module")
def full() -> list[Product]:
    return list(Generator(N))


@pytest.fixture(scope="module")
def mini() -> list[Product]:
    return list(Generator(N, size="mini"))


@pytest.fixture(params=SIZES)
def products(request: pytest.FixtureRequest) -> list[Product]:
    return request.getfixturevalue(request.param)


def as_json(products: Sequence[Product]) -> str:
    return json.dumps([asdict(p) for p in products], ensure_ascii=False)


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def texts(product: Product) -> str:
    return "\n".join((product.name, product.description, *product.bullets)).lower()


# --- The same products, everywhere


@pytest.mark.parametrize("size", SIZES)
def test_products_are_pinned(size: Size) -> None:
    assert hashlib.sha256(as_json(list(Generator(200, size=size))).encode()).hexdigest() == PINNED[size]


def test_another_process_makes_the_same() -> None:
    code = "from agentgym.envs.webshop.generate import Generator; print([Generator(10**6, seed=3).product(i) for i in (0, 999_999)])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"})
    generator = Generator(10**6, seed=3)
    assert out.stdout.strip() == str([generator.product(i) for i in (0, 999_999)])


@pytest.mark.parametrize("size", SIZES)
def test_random_access_equals_iteration(size: Size) -> None:
    generator = Generator(300, seed=5, size=size)
    backwards = [generator.product(i) for i in reversed(range(300))][::-1]
    assert list(generator) == list(generator.products()) == backwards
    assert len(generator) == 300
    assert list(Generator(100, seed=5, size=size)) == backwards[:100]  # n does not matter


@pytest.mark.parametrize("size", SIZES)
def test_seeds_differ(size: Size) -> None:
    a, b = (list(Generator(200, seed=seed, size=size)) for seed in (0, 1))
    assert not {p.asin for p in a} & {p.asin for p in b}
    assert sum(x.name == y.name for x, y in zip(a, b, strict=True)) < 5


@pytest.mark.parametrize("size", SIZES)
@settings(deadline=None, max_examples=200)
@given(i=st.integers(0, 10_000_000), j=st.integers(0, 10_000_000), seed=st.integers(-(2**70), 2**70))
def test_ids(size: Size, i: int, j: int, seed: int) -> None:
    generator = Generator(10_000_001, seed=seed, size=size)
    a, b = generator.product(i), generator.product(j)
    assert re.fullmatch(r"B0[A-Z0-9]{8}", a.asin)
    assert (a.asin == b.asin) == (i == j)


@pytest.mark.parametrize("size", SIZES)
def test_ids_are_unique_and_look_random(size: Size) -> None:
    generator = Generator(10_000_000, size=size)
    numbers = [*range(150_000), *range(9_850_000, 10_000_000)]
    asins = [generator._asin(i) for i in numbers]
    assert len(set(asins)) == len(numbers)
    for place in range(2, 10):
        counts = Counter(asin[place] for asin in asins[:3600])
        different = (36 if place > 2 else 29) if size == "full" else 5 if place % 2 else 13
        assert len(counts) == different and max(counts.values()) < 1.5 * 3600 / different, (place, counts)
    assert sum(a < b for a, b in itertools.pairwise(asins[:1000])) in range(400, 600)  # neighbours are not in order


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'mini'"):
        Generator(10, size="mni")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="from 1 to 16,777,216"):
        Generator(2**24 + 1, size="mini")
    with pytest.raises(ConfigError, match="n=0"):
        Generator(0)
    for i in (-1, 5):
        with pytest.raises(IndexError, match="products 0 to 4"):
            Generator(5).product(i)


# --- Calibration at n = 3,000, to the official 1,000 products (facts/webshop.md)


def test_texts_are_as_long_as_official_ones(full: list[Product]) -> None:
    assert statistics.mean(len(p.name) for p in full) == pytest.approx(116, rel=0.05)
    assert statistics.median(len(p.description) for p in full) == pytest.approx(307, rel=0.15)
    assert statistics.mean(len(p.bullets) for p in full) == pytest.approx(4.6, rel=0.05)
    assert statistics.mean(len(p.text.split()) for p in full) == pytest.approx(124, rel=0.05)


def test_kinds_are_as_many_as_official_ones(full: list[Product]) -> None:
    for start in range(0, N, 1000):
        some = full[start : start + 1000]
        assert len({p.query for p in some}) == pytest.approx(246, rel=0.06)
        assert len({a for p in some for a in p.attributes}) == pytest.approx(598, rel=0.06)
    share = Counter(p.category for p in full)
    for category, count in CATEGORIES.items():
        assert share[category] / N == pytest.approx(count / 1000, abs=0.03)
    assert {p.product_category.count(" › ") + 1 for p in full} == {3, 4, 5}


def test_options_are_as_official_ones(full: list[Product]) -> None:
    counts = Counter(len(p.options) for p in full)
    for n, share in {0: 0.58, 1: 0.25, 2: 0.17, 3: 0.01}.items():
        assert counts[n] / N == pytest.approx(share, abs=0.03)
    assert statistics.mean(len(values) for p in full for values in p.options.values()) == pytest.approx(5.7, rel=0.07)
    names = Counter(name for p in full for name in p.options)
    for name, official, tolerance in (("color", 286, 0.1), ("size", 268, 0.12), ("style", 21, 0.5), ("flavor name", 12, 0.5), ("fit type", 11, 0.6)):
        assert names[name] * 1000 / N == pytest.approx(official, rel=tolerance), name
    assert all(len(set(values)) == len(values) >= 2 for p in full for values in p.options.values())


def test_attributes_are_as_official_ones(full: list[Product]) -> None:
    counts = Counter(len(p.attributes) if p.wishes else 0 for p in full)
    assert counts[0] / N == pytest.approx(0.19, abs=0.02)
    assert sum(counts[n] for n in (1, 2, 3, 4)) / N == pytest.approx(0.64, abs=0.04)
    assert all(len(set(p.attributes)) == len(p.attributes) for p in full)


def test_prices_are_as_official_ones(full: list[Product]) -> None:
    assert sum(len(p.prices) == 2 for p in full) / N == pytest.approx(0.09, abs=0.015)
    assert sum(p.prices == (100.0,) for p in full) / N == pytest.approx(0.09, abs=0.015)
    prices = sorted(p.prices[0] for p in full)
    for k, official in enumerate(DECILES, 1):
        assert prices[N * k // 10] == pytest.approx(official, rel=0.2)
    assert all(p.prices[0] < p.prices[-1] for p in full if len(p.prices) == 2)
    assert all(round(price, 2) == price > 0 for p in full for price in p.prices)


def test_rivals_share_a_query(full: list[Product]) -> None:
    """What sells under one query differs in what it has, what can be chosen, and what it costs; some are from the same maker."""
    ((most, _),) = Counter(p.query for p in full).most_common(1)
    biggest = [p for p in full if p.query == most]
    assert len(biggest) >= 30
    for what, share in (("attributes", 0.6), ("options", 0.3), ("prices", 0.6), ("name", 0.9)):
        assert len({str(getattr(p, what)) for p in biggest}) > share * len(biggest)
    twins = sum(a.query == b.query and a.name.split()[0] == b.name.split()[0] for a, b in zip(full[::2], full[1::2], strict=True))
    assert twins / N == pytest.approx(3 / 16, abs=0.03)


# --- Wishes and texts


def test_a_wish_asks_for_what_its_product_has(products: list[Product]) -> None:
    for p in products:
        assert len(p.wishes) == (p.attributes != ("DUMMY_ATTR",))
        for wish in p.wishes:
            assert 1 <= len(wish.attributes) <= 3 and set(wish.attributes) <= set(p.attributes)
            homes = [next(name for name, values in p.options.items() if value in values) for value in wish.options]
            assert len(homes) == len(set(homes))


def test_a_wish_says_what_it_asks_for(products: list[Product]) -> None:
    kinds = {kind.ware.path: kind.ware for kind in (*Full().kinds, *Mini().kinds)}
    for p in products:
        for wish in p.wishes:
            said = words(wish.text)
            for phrase in (*wish.attributes, *wish.options):
                for word in words(phrase):
                    assert word in said or f"{word}s" in said, (word, wish)
            assert any(name.text in wish.text for name in kinds[p.product_category].nouns), wish


def test_the_form_of_a_wish(products: list[Product]) -> None:
    for wish in (wish for p in products for wish in p.wishes):
        assert wish.text == wish.text.lower() == wish.text.strip()
        assert not re.search(r"[\[\]{}\n]|  | ,|\.$|please please", wish.text), wish.text
        assert not re.search(r"\ba (?!one )[aeio]|\ban (?!fm|led|msg)[bcdfgjkmptvwz]", wish.text), wish.text


def test_most_values_are_asked_for(products: list[Product]) -> None:
    asked = [len(wish.options) / len(p.options) for p in products if p.options for wish in p.wishes]
    assert statistics.mean(asked) == pytest.approx(0.8, abs=0.04)


def test_wishes_are_many_sentences(full: list[Product]) -> None:
    wishes = [wish.text for p in full for wish in p.wishes]
    assert len(set(wishes)) > 0.99 * len(wishes)
    assert len({" ".join(text.split()[:4]) for text in wishes}) > 600
    assert sum(". " in text for text in wishes) / len(wishes) == pytest.approx(0.2, abs=0.05)
    assert statistics.mean(len(text.split()) for text in wishes) == pytest.approx(14, abs=1.5)


def test_most_attributes_stand_in_the_texts(products: list[Product]) -> None:
    found = [attribute in texts(p) for p in products if p.wishes for attribute in p.attributes]
    assert statistics.mean(found) > 0.88
    said = [(a, set(words(texts(p)))) for p in products if p.wishes for a in p.attributes]
    spelt = [all(word in text or f"{word}s" in text for word in words(a)) for a, text in said]
    assert statistics.mean(spelt) > 0.95


def test_few_texts_have_attributes_of_others(products: list[Product]) -> None:
    kinds = {kind.ware.path: kind for kind in (*Full().kinds, *Mini().kinds)}
    false = [a.name for p in products for a in kinds[p.product_category].attributes if a.name not in p.attributes and a.name in texts(p)]
    assert len(false) < 0.05 * len(products), Counter(false).most_common(5)


def test_nouns_are_words_of_the_name(products: list[Product]) -> None:
    for p in products:
        assert p.nouns
        tokens = [token.removesuffix("'s") for token in re.findall(r"[\w'-]+", p.name.lower())]
        rest = iter(tokens)
        assert all(any(noun == token for token in rest) for noun in p.nouns), p  # in the order of the name, with repeats


def test_nouns_of_a_name() -> None:
    p = next(p for p in Generator(N) if p.query == "console tables" and "Table" in p.name and p.nouns)
    assert "table" in (p.nouns or ()) and p.name.split()[0].lower() in (p.nouns or ())
    assert not {"for", "with", "and", "modern", "sturdy", "narrow"} & set(p.nouns or ())


def test_all_kinds_of_letters(full: list[Product]) -> None:
    text = as_json(full)
    assert {"ñ", "é", "›", "–", "【", "û"} <= set(text)
    assert text.encode("utf-8").decode("utf-8") == text
    assert all(c.isprintable() for c in text)
    assert '"' in "".join(v for p in full for values in p.options.values() for v in values)  # inches: what must be escaped occurs


@settings(deadline=None, max_examples=300)
@given(i=st.integers(0, 10**7), seed=st.integers(0, 2**64))
def test_every_product_is_sound(i: int, seed: int) -> None:
    for size in SIZES:
        p = Generator(10**7 + 1, seed=seed, size=size).product(i)
        assert p.name and p.query and p.category in CATEGORIES and p.prices and p.attributes
        assert len(p.options) <= 3 and p.template is None
        for text in (p.name, p.description, *p.bullets, *p.attributes, *(v for values in p.options.values() for v in values)):
            assert text == " ".join(text.split()), text  # no double spaces, no line breaks
            assert not re.search(r"[{}\[\]]", text), text
        assert all(v == v.lower() and n == n.lower() for n, values in p.options.items() for v in values)


# --- The small world


def test_mini_is_small(mini: list[Product]) -> None:
    assert {len(p.name.split()) for p in mini} <= {3, 4, 5, 6}
    assert statistics.mean(len(p.name) for p in mini) < 24
    assert max(len(p.bullets) for p in mini) == 1
    assert max(len(p.description) for p in mini) < 60
    assert max(len(values) for p in mini for values in p.options.values()) == 4
    assert max(len(wish.text.split()) for p in mini for wish in p.wishes) <= 16
    vocabulary = {word for p in mini for text in (p.text, *p.bullets, *(w.text for w in p.wishes)) for word in words(text)}
    assert 200 < len(vocabulary) < 350
    assert {p.product_category.count(" › ") + 1 for p in mini} == {3}
    assert {p.category for p in mini} == set(CATEGORIES)


def test_mini_attributes_and_values_are_told_apart() -> None:
    """No two attributes of a ware, and no two values of an option, are alike for the reward (token_set_ratio above 85)."""
    world = Mini()
    for kind in world.kinds:
        names = [a.name for a in kind.attributes]
        assert not [(a, b) for a in names for b in names if a < b and token_set_ratio(a, b) > 85]
    for values in world.values.values():
        assert not [(a, b) for a in values for b in values if a < b and token_set_ratio(a, b) > 85]


# --- The word tables


def families() -> list[Family]:
    return list({id(kind.family): kind.family for world in (Full(), Mini()) for kind in world.kinds}.values())


def test_attributes_of_a_family_are_told_apart() -> None:
    for kind in Full().kinds:
        names = [a.name for a in kind.attributes]
        assert len(set(names)) == len(names), kind.ware.query
        assert not [(a, b) for a in names for b in names if a < b and token_set_ratio(a, b) > 85], kind.ware.query


def test_every_ware_can_be_made() -> None:
    every = [ware.query for family in families() for ware in family.wares]
    assert len(set(every)) >= 300
    assert {p.query for p in Generator(12_000)} == {kind.ware.query for kind in Full().kinds}
    assert all(len(kind.options) >= 2 and len(kind.attributes) >= 8 for kind in (*Full().kinds, *Mini().kinds))


def test_no_two_options_of_a_product_share_a_value() -> None:
    """Where they do, only the later one can be clicked."""
    for world in (Full(), Mini()):
        pools = {tuple(option.pool for option in chosen) for kind in world.kinds for sets in kind.options for chosen in sets}
        for names in pools:
            values = [value for name in names for value in world.values[name]]
            assert len(set(values)) == len(values), names


def test_the_notation_of_attributes() -> None:
    said = {
        text: (a.name, a.lead, a.tail)
        for text in ("is soft", "easy clean", "has a red sole", "has long sleeve(s)", "for the bath")
        for a in [attribute(text)]
    }
    assert said == {
        "is soft": ("soft", "soft", "soft"),
        "easy clean": ("easy clean", "easy to clean", "easy to clean"),
        "has a red sole": ("red sole", "red sole", "a red sole"),
        "has long sleeve(s)": ("long sleeve", "long sleeve", "long sleeves"),
        "for the bath": ("bath", "bath", "the bath"),
    }
    with pytest.raises(ValueError, match="must start with"):
        attribute("soft sole")
    assert [noun(text).number for text in ("~tea", "jeans", "dress", "camera lens")] == ["mass", "many", "one", "one"]
    assert [article(x) for x in ("apple", "usb cable", "hdmi cable", "universal case", "x-large tee", "8 pack", "one piece")] == [
        "an",
        "a",
        "an",
        "a",
        "an",
        "an",
        "a",
    ]
    assert titled("12 ounce (pack of 6)") == "12 Ounce (Pack of 6)"


# --- Nobody's words but ours


def test_nothing_is_taken_from_the_official_data(full: list[Product], mini: list[Product], shared: Callable[[str, str], Path]) -> None:
    folder = shared("data/webshop", "official WebShop data")
    items = json.loads((folder / "items_shuffle_1000.json").read_text())
    goals = {" ".join(goal.lower().split()) for goal in json.loads((folder / "human_goals.json").read_text())}
    official = [(p["name"], p["full_description"] or "", *(p["small_description"] or ())) for p in items]
    sentences = {s.strip(" .!?").lower() for text in official for part in text for s in re.split(r"(?<=[.!?])\s+|\n", part)}
    ours = [p for p in (*full, *mini)]
    assert len(sentences) > 5000 and len(goals) > 10_000
    assert not {p.name.lower() for p in ours} & sentences
    assert not [
        s
        for p in ours
        for text in (p.description, *p.bullets)
        for s in re.split(r"(?<=[.!?])\s+", text)
        if len(s) > 30 and s.strip(" .!?").lower() in sentences
    ]
    assert not [w.text for p in ours for w in p.wishes if w.text in goals]
    known = {word for text in official for part in text for word in words(part)}
    assert not {brand.lower() for brand in BRANDS} & known
