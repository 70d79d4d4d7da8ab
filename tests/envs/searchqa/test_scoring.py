"""Scores worked by hand, what always holds between them, and the format reward against the known ways to cheat it."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.answers import normalise
from agentgym.envs.searchqa.scoring import action, exact_match, f1, final_answer, format_reward, sub_exact_match, well_formed

TEXT = st.text(st.sampled_from("aAbnthe T.,-'é9  "), max_size=24)
GOLD = TEXT.filter(lambda text: bool(normalise(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel\tTower.", "eiffel tower"),
        ("U.S.", "us"),  # punctuation goes before articles: never "u s"
        ("the-end", "theend"),
        ("a/the", "athe"),
        ("An apple a day, then an hour", "apple day then hour"),
        ("Theatre", "theatre"),
        ("«École»", "«école»"),  # only ASCII punctuation, and accents stay
        ("The a an", ""),
        ("__init__", "init"),
    ],
)
def test_normalise_as_squad(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_exact_match_over_several_right_answers() -> None:
    assert exact_match("the Gunung Kinabalu!", ["Mount Kinabalu", "Gunung Kinabalu"]) == 1.0
    assert exact_match("Kinabalu", ["Mount Kinabalu", "Gunung Kinabalu"]) == 0.0
    assert exact_match("Kinabalu", "kinabalu.") == 1.0  # one text is one answer, not a list of letters
    assert exact_match("k", "kinabalu") == 0.0
    assert exact_match("x", []) == 0.0


def test_sub_exact_match_and_its_guard() -> None:
    assert sub_exact_match("It is the capital, Paris.", ["paris"]) == 1.0
    assert sub_exact_match("Paris", ["Paris, France"]) == 0.0
    assert sub_exact_match("a party", ["art"]) == 1.0  # by letters, as the published figures are
    guesses = "Berlin, Rome, Madrid, Lisbon, Paris"
    assert sub_exact_match(guesses, ["Paris"]) == 1.0
    assert sub_exact_match(guesses, ["Paris"], max_words=4) == 0.0
    assert sub_exact_match("Paris of course", ["Paris"], max_words=4) == 1.0


def test_f1_by_hand() -> None:
    # said: mount kinabalu in malaysia; right: gunung kinabalu. One word in common: P 1/4, R 1/2, F1 = 2·(1/8)/(3/4) = 1/3.
    assert f1("Mount Kinabalu in Malaysia", ["Gunung Kinabalu"]) == pytest.approx(1 / 3)
    # Counted with repeats: new new york against new york: P 2/3, R 1, F1 4/5.
    assert f1("new new york", ["New York"]) == pytest.approx(0.8)
    assert f1("new york", ["London", "York", "New York City"]) == pytest.approx(0.8)  # the best: P 1, R 2/3
    assert f1("london", ["paris"]) == 0.0


@pytest.mark.parametrize("score", [exact_match, sub_exact_match, f1])
def test_an_answer_of_which_nothing_is_left_is_compared_as_it_stands(score: type[float]) -> None:
    assert score("A", ["A"]) == 1.0  # a blood group
    assert score("a", [" A "]) == 1.0
    for said in ("", "the", "!", "B", "A lot"):
        assert score(said, ["A"]) == 0.0, said
    assert score("", [""]) == 0.0
    assert score("", ["Paris"]) == 0.0
    assert score("---", ["---"]) == 1.0  # a real row of NQ-open


@settings(deadline=None)  # a loaded machine is no failure
@given(TEXT, st.lists(GOLD, min_size=1, max_size=3))
def test_em_is_the_strictest(said: str, golds: list[str]) -> None:
    em, sub, overlap = exact_match(said, golds), sub_exact_match(said, golds), f1(said, golds)
    assert 0.0 <= em <= sub <= 1.0
    assert 0.0 <= em <= overlap <= 1.0
    assert exact_match(golds[0], golds) == sub_exact_match(golds[0], golds) == f1(golds[0], golds) == 1.0


@settings(deadline=None)
@given(TEXT, st.lists(GOLD, min_size=1, max_size=3), st.sampled_from(string.punctuation))
def test_case_punctuation_articles_and_blanks_do_not_matter(said: str, golds: list[str], mark: str) -> None:
    for other in (said.upper(), said + mark, mark + said, f" the  {said} "):
        for score in (exact_match, sub_exact_match, f1):
            if normalise(other) == normalise(said):  # É in capitals is another letter to some
                assert score(other, golds) == score(said, golds)


@settings(deadline=None)
@given(TEXT, st.lists(GOLD, min_size=1, max_size=3), GOLD)
def test_another_right_answer_never_lowers_a_score(said: str, golds: list[str], more: str) -> None:
    for score in (exact_match, sub_exact_match, f1):
        assert score(said, [*golds, more]) >= score(said, golds)


SEARCH = "<think>Which country?</think>\n<search> anthem Negaraku </search>"
RIGHT = "<think>Malaysia: Gunung Kinabalu.</think>\n<answer> Gunung Kinabalu </answer>\n"
WRONG = "<think>Hm.</think><answer>Mont Blanc</answer>"
BARE = "Gunung Kinabalu it is. <answer>Gunung Kinabalu</answer>"
EMPTY = "<think>I do not know.</think><answer> </answer>"


@pytest.mark.parametrize(
    ("completions", "reward"),
    [
        ([SEARCH, SEARCH, RIGHT], 1.0),
        ([RIGHT], 1.0),
        ([SEARCH, BARE], 0.8),
        (["no tag at all", RIGHT], 0.8),  # an invalid action in between
        ([SEARCH, WRONG], 0.2),
        ([SEARCH, "<answer>Mont Blanc</answer>"], 0.1),
        ([SEARCH, EMPTY], 0.2),  # good form, nothing said
        ([SEARCH, "<answer></answer>"], 0.0),
        ([SEARCH, SEARCH], 0.0),  # no answer is never in good form
        ([SEARCH, "<think>I could go on"], 0.0),
        ([], 0.0),
    ],
)
def test_format_reward_by_hand(completions: list[str], reward: float) -> None:
    assert format_reward(completions, ["Gunung Kinabalu"]) == pytest.approx(reward)


def test_format_reward_has_its_parts_as_options() -> None:
    assert format_reward([BARE], "Gunung Kinabalu", structure=0.4) == pytest.approx(0.6)
    assert format_reward([WRONG], "Gunung Kinabalu", structure=0.4) == pytest.approx(0.4)
    assert format_reward(["<answer>x</answer>"], "Gunung Kinabalu", final=0.05) == pytest.approx(0.05)


def test_avoiding_the_answer_never_pays() -> None:
    avoided = max(format_reward(c, ["x"]) for c in ([SEARCH], [SEARCH, SEARCH], ["<think>no</think>"], [""]))
    assert avoided == 0.0 < format_reward(["<answer>wrong</answer>"], ["x"])


def test_the_first_answer_ends_the_episode() -> None:
    shotgun = "<think>t</think><answer>Mont Blanc</answer><answer>Gunung Kinabalu</answer>"
    assert final_answer([shotgun]) == "Mont Blanc"
    assert format_reward([shotgun], ["Gunung Kinabalu"]) == pytest.approx(0.1)  # wrong, and two answers are no good form
    assert final_answer([WRONG, RIGHT]) == "Mont Blanc"
    assert not well_formed([WRONG, RIGHT])
    assert final_answer([SEARCH + "<answer>Gunung Kinabalu</answer>", WRONG]) == "Mont Blanc"  # the search was the action
    assert final_answer(["<answer>cut off", RIGHT]) == "Gunung Kinabalu"
    assert action("<search>\n two\nlines </search>") == ("search", "two\nlines")
    assert action("<search>open <answer>x</answer>") == ("answer", "x")
    assert action("nothing") is None


@pytest.mark.parametrize(
    "completion",
    [
        "<think>t</think> so: <answer>x</answer>",  # text between the tags
        "<answer>x</answer>",  # no thought
        "<think>t</think><answer>x</answer><think>more</think>",
        "<think>t<think>u</think></think><answer>x</answer>",
        "<think>t <answer>x</answer>",
        "<think>t</think><information>my own</information><answer>x</answer>",  # it writes what it wants to find
        "<think><information>my own</information></think><answer>x</answer>",
        "<think>t</think><answer>x</answer>.",
        "<think>t</think><answer>x <search>y</search></answer>",
        "<think>t</think><think>u</think><answer>x</answer>",
        "<THINK>t</THINK><answer>x</answer>",
    ],
)
def test_bad_form(completion: str) -> None:
    assert not well_formed([completion])


def test_good_form_allows_what_is_no_tag() -> None:
    assert well_formed(["\n <think> 1 < 2, <b>bold</b> </think>\n\n<answer>x < y</answer> "])
    assert well_formed([SEARCH, "<think></think><answer></answer>"])
    assert not well_formed([RIGHT, SEARCH])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<", "x", "\n"]), max_size=60))
def test_any_text_gets_one_of_the_six_rewards(parts: list[str]) -> None:
    assert any(format_reward(["".join(parts)], ["x"]) == pytest.approx(value) for value in (1.0, 0.8, 0.2, 0.1, 0.0))


def test_long_texts_are_scored_in_no_time() -> None:
    start = time.monotonic()
    for bad in ("<think>" * 20_000, "<think>" + "<" * 100_000, "<answer>" * 20_000, "<think>x</think>" + " " * 50_000 + "x"):
        assert format_reward([bad], ["x"]) == 0.0
    assert time.monotonic() - start < 5.0
