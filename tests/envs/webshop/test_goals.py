"""Goals, prices and splits: what the original draws, what is told apart, and what files may hold."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.webshop import catalogue as catalogues
from agentgym.envs.webshop.goals import NO_CEILING, Drawn, Recorded, Set, ceiling, combination, price_clause
from agentgym.envs.webshop.tasks import OFFICIAL, Tasks, members
from agentgym.envs.webshop.types import Product, Wish
from agentgym.errors import DataError, EnvError, TaskError


def test_seed_0_draws_what_the_original_drew(webshop_data: Path) -> None:
    catalogue = catalogues.open_files(webshop_data, 1000)
    prices = json.loads((webshop_data / "transcripts" / "prices.json").read_text())
    for kind, n in (("synthetic", 6910), ("human", 13)):
        mine, theirs = Drawn(catalogue, kind, 0), Recorded(catalogue, kind, webshop_data / "transcripts")  # type: ignore[arg-type]
        assert len(mine) == len(theirs) == n
        assert all(mine.goal(i) == theirs.goal(i) for i in range(n))  # text, ceiling, options, weight: everything
        assert np.array_equal(mine.weights, theirs.weights)
    assert {p.asin: mine.cost(row) for row, p in enumerate(catalogue)} == prices


def test_another_seed_draws_other_prices_and_ceilings_for_the_same_goals(webshop_data: Path) -> None:
    catalogue = catalogues.open_files(webshop_data, 1000)
    zero, one = Drawn(catalogue, "synthetic", 0), Drawn(catalogue, "synthetic", 1)
    assert [g.asin for g in map(zero.goal, range(50))] == [g.asin for g in map(one.goal, range(50))]
    assert any(zero.goal(i).price_upper != one.goal(i).price_upper for i in range(50))
    assert (zero.costs != one.costs).sum() == 93  # the products with a range


@given(st.floats(0, 2000), st.integers(0, 99))
def test_a_ceiling_is_one_of_the_next_four_tens(price: float, seed: int) -> None:
    upper = ceiling(price, random.Random(seed))
    if price >= 980:  # 990 alone is left, or nothing
        assert upper == NO_CEILING and price_clause(upper) == ""
    else:
        above = [c for c in range(10, 1000, 10) if c > price][:4]
        assert upper in above[1:] and price_clause(upper) == f", and price lower than {upper}.00 dollars"


def test_combinations_run_through_the_options_by_name() -> None:
    product = Product("B0", "p", options={"size": ("s", "m"), "color": ("red", "blue", "tan")})
    found = [combination(product, i) for i in range(6)]
    assert found[0] == {"color": "red", "size": "s"} and found[1] == {"color": "red", "size": "m"} and found[5] == {"color": "tan", "size": "m"}
    assert len({tuple(c.items()) for c in found}) == 6 and list(found[0]) == ["color", "size"]
    assert combination(Product("B0", "p"), 0) == {}


def shelf(tmp_path: Path, n: int = 40, wishes: int = 1) -> catalogues.Catalogue:
    """Return a small catalogue with a template on every other product, and `wishes` instructions on each."""
    products = [
        Product(
            f"B{i:09d}",
            f"thing number{i}",
            "toys",
            "thing",
            "Toys › Things",
            (float(i + 1),),
            template="Find me a thing" if i % 2 else None,
            template_attributes=("common", f"rare{i}") if i % 2 else (),
            attributes=("common", f"rare{i}"),
            options={"color": ("red", "blue")},
            wishes=tuple(Wish(f"a thing, number {i}, wish {w}", ("common",)) for w in range(wishes)),
        )
        for i in range(n)
    ]
    (tmp_path / "c").mkdir()
    catalogues.build(products, tmp_path / "c", progress=False)
    return catalogues.Catalogue(tmp_path / "c")


def test_weights_are_higher_for_rare_attributes(tmp_path: Path) -> None:
    goals = Drawn(shelf(tmp_path), "synthetic")
    assert len(goals) == 40  # 20 products with a template, 2 colours each
    # `common` is asked for by 40 goals, each rare attribute by the 2 of its product: the mean of 1/40 and 1/2.
    assert goals.goal(0).weight == pytest.approx((1 / 40 + 1 / 2) / 2) and np.allclose(goals.weights, 0.2625)


def test_every_wish_is_a_goal(tmp_path: Path) -> None:
    goals = Drawn(shelf(tmp_path, 10, 3), "human")
    assert Counter(goals.goal(i).asin for i in range(30)) == {f"B{i:09d}": 3 for i in range(10)}
    assert len({goals.goal(i).instruction for i in range(30)}) == 30


@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_no_product_is_the_goal_of_two_splits(tmp_path: Path, kind: Set) -> None:
    goals = Drawn(shelf(tmp_path, 400), kind)
    found = {split: members(goals, split) for split in ("train", "eval", "test")}
    assert sorted(np.concatenate(list(found.values()))) == list(members(goals, "all")) == list(range(len(goals)))
    asins = {split: {goals.goal(int(i)).asin for i in numbers} for split, numbers in found.items()}
    assert not asins["train"] & asins["test"] and not asins["train"] & asins["eval"] and not asins["eval"] & asins["test"]
    assert all(asins.values()) and len(asins["train"]) > 6 * len(asins["test"])


def test_a_product_that_is_added_moves_no_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    few, many = Drawn(shelf(tmp_path / "a", 100), "human"), Drawn(shelf(tmp_path / "b", 120), "human")
    test = [{g.goal(int(i)).asin for i in members(g, "test")} for g in (few, many)]
    assert test[0] <= test[1]


def test_the_full_data_is_split_as_in_the_original(tmp_path: Path) -> None:
    goals = Drawn(shelf(tmp_path, 30, 100), "human")  # 3,000 instructions: not the small set
    assert [len(members(goals, s)) for s in ("test", "eval", "train")] == [500, 1000, 1500]
    assert members(goals, "test")[-1] == 499 and members(goals, "train")[0] == OFFICIAL["train"][0] == 1500


def test_the_small_set_says_that_it_has_13_human_goals(webshop_data: Path) -> None:
    goals = Drawn(catalogues.open_files(webshop_data, 1000), "human")
    sizes = {s: len(members(goals, s)) for s in ("train", "eval", "test")}
    assert sum(sizes.values()) == 13
    empty = [s for s, n in sizes.items() if not n]
    for split in empty:
        with pytest.raises(EnvError, match="13 human goals"):
            Tasks([goals], split)


def test_ids_are_found_and_others_refused(tmp_path: Path) -> None:
    sets = [Drawn(shelf(tmp_path), "synthetic"), Drawn(catalogues.Catalogue(tmp_path / "c"), "human")]
    tasks = Tasks(sets, "train")
    for id in tasks.ids():
        goals, i = tasks.find(id)
        assert f"{goals.kind}/{i}" == id
    others = set(Tasks(sets, "all").ids()) - set(tasks.ids())
    for id in [*others, "synthetic/99999", "synthetic/-1", "synthetic/01", "human/", "", "nobody/1", "synthetic/٣", None, 7]:
        with pytest.raises(TaskError, match="has no task"):
            tasks.find(id)
    with pytest.raises(EnvError, match=r"no split 'tset'. Did you mean 'test'"):
        Tasks(sets, "tset")


def test_a_draw_goes_by_weight(tmp_path: Path) -> None:
    sets = [Drawn(shelf(tmp_path), "synthetic"), Drawn(catalogues.Catalogue(tmp_path / "c"), "human")]
    tasks = Tasks(sets, "all")
    drawn = Counter(tasks.draw((u + 0.5) / 5000)[0].kind for u in range(5000))
    # 40 synthetic goals of weight 0.2625 and 40 of weight 1.
    assert drawn["synthetic"] / 5000 == pytest.approx(0.2625 / 1.2625, abs=0.002)
    assert tasks.draw(0.0)[1] == 0 and tasks.draw(1 - 1e-16)[1] == 39


def test_damaged_recordings_are_named(tmp_path: Path) -> None:
    catalogue = shelf(tmp_path)
    with pytest.raises(DataError, match=r"it holds goals.json.gz and prices.json"):
        Recorded(catalogue, "human", tmp_path / "nowhere")

    def record(name: str, goals: dict[str, object]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        with gzip.open(folder / "goals.json.gz", "wt") as f:
            json.dump(goals, f)
        (folder / "prices.json").write_text("{}")
        return folder

    with pytest.raises(DataError, match="has no 'human' goals; it has synthetic"):
        Recorded(catalogue, "human", record("one", {"synthetic": []}))
    with pytest.raises(DataError, match=r"not complete \(KeyError: 'asin'\)"):
        Recorded(catalogue, "human", record("two", {"human": [{"goal_index": 0, "goal_options": []}]}))
    whole = {"goal_index": 0, "asin": "B9", "category": "", "query": "", "name": "", "product_category": "", "instruction_text": "x"}
    goal = {**whole, "attributes": [], "price_upper": 10, "goal_options": []}
    with pytest.raises(DataError, match="ask for B9, which is not among the 40 products"):
        Recorded(catalogue, "human", record("three", {"human": [goal]}))
    recorded = Recorded(catalogue, "human", record("four", {"human": [{**goal, "asin": "B000000001"}]}))
    with pytest.raises(DataError, match=r"prices.json of the recording has no price for B000000001"):
        recorded.cost(1)
