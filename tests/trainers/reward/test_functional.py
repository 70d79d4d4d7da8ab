"""Functional rewards: an action counts when it does what the expert's did, and the environments' own words are read."""

from __future__ import annotations

from typing import Any

import pytest

from agentgym import registry
from agentgym.answers import normalise, token_f1
from agentgym.env import make
from agentgym.errors import ConfigError
from agentgym.trainers.reward.functional_searchqa import documents, read_call
from agentgym.types import Completion, Status, Step, Task, Trajectory

FUNCTIONAL = [n for n in registry.names("reward") if n.startswith("functional_")]


def episode(
    action: str, expected: str, *, led_to: str = "a", expert_led_to: str = "b", valid: bool = True, how: str = "replay", **more: Any
) -> Trajectory:
    """An episode of one turn from a pivot."""
    start = {"history": [], "now": {"observation": "o", "admissible": None}, "info": {}, "how": how}
    task = Task("t", "e", "train", data={"start": start, "expected": {"action": expected, "observation": expert_led_to}})
    step = Step([1], True, Completion(action, [2]), action, valid, "o", 0.0, "s")
    final = "" if how == "context" else led_to
    return Trajectory(task, "g", [step, *more.get("later", [])], status=Status.TRUNCATED, final_observation=more.get("final", final))


def score(name: str, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> float:
    return float(registry.bind("reward", f"functional_{name}", options or {})(episode(*args, **kwargs)))


# -------------------------------------------------------------------------------------------------------------------- ALFWorld


@pytest.mark.parametrize(
    "action, expected, value",
    [
        ("go to shelf 1", "go to shelf 1", 1.0),
        ("go to shelf 3", "go to shelf 1", 1.0),  # the same class
        ("Go  to SHELF 12", "go to shelf 1", 1.0),
        ("go to drawer 1", "go to shelf 1", 0.0),
        ("open shelf 1", "go to shelf 1", 0.0),  # another verb
        ("take apple 2 from fridge 1", "take apple 1 from fridge 2", 1.0),
        ("take apple 1 from fridge 1", "take apple 1 from shelf 1", 0.0),
        ("take apple 1", "take apple 1 from fridge 1", 0.0),
        ("move apple 1 to fridge 1", "move apple 2 to fridge 1", 1.0),
        ("put apple 1 in/on fridge 1", "put apple 1 in/on fridge 2", 1.0),
        ("go to shelf", "go to shelf 1", 1.0),  # no number at all is refused by the environment, see below
        ("inventory", "look", 0.0),
        ("", "look", 0.0),
    ],
)
def test_alfworld_compares_verbs_and_classes(action: str, expected: str, value: float) -> None:
    assert score("alfworld", action, expected) == value
    assert score("alfworld", action, expected, how="context") == value  # words need no environment


def test_alfworld_counts_what_leads_to_the_same() -> None:
    same = {"led_to": "You are there.", "expert_led_to": "You are there."}
    assert score("alfworld", "examine shelf 1", "go to shelf 1", **same) == 1.0
    assert score("alfworld", "examine shelf 1", "go to shelf 1", valid=False, **same) == 0.0  # it was not accepted
    assert score("alfworld", "examine shelf 1", "go to shelf 1", led_to="You are not.") == 0.0
    # A stored context shows no observation: an empty one is none, even where the expert's was empty.
    assert score("alfworld", "examine shelf 1", "go to shelf 1", expert_led_to="", how="context") == 0.0


def test_alfworld_a_refused_command_is_not_equivalent() -> None:
    assert score("alfworld", "go to shelf 9", "go to shelf 1", valid=False) == 0.0
    assert score("alfworld", "go to shelf 9", "go to shelf 1", valid=False, options={"accepted": False}) == 1.0


def test_alfworld_in_the_real_game() -> None:
    env = make("alfworld", split="train", size="mini")
    task = env.tasks()[0]

    def after(action: str) -> tuple[str, bool]:
        env.reset(options={"task": task})
        observation, _, _, _, info = env.step(action)
        return observation, info["valid"]

    _, info = env.reset(options={"task": task})
    goes = [a for a in info["admissible"] if a.startswith("go to")]
    led_to, _ = after(goes[0])
    for action in [*goes, "look", "go to nowhere 1", goes[0].rpartition(" ")[0]]:
        observation, valid = after(action)
        alike = action.rpartition(" ")[0] == goes[0].rpartition(" ")[0] and action in goes
        got = score("alfworld", action, goes[0], led_to=observation, expert_led_to=led_to, valid=valid)
        assert got == float(alike), action


# --------------------------------------------------------------------------------------------------------------------- WebShop


@pytest.mark.parametrize(
    "action, expected, value",
    [
        ("click[b07xyz1234]", "click[B07XYZ1234]", 1.0),
        ("click[Buy Now]", "click[buy now]", 1.0),
        ("click[back to search]", "click[buy now]", 0.0),
        ("search[red shoes]", "search[red running shoes]", 1.0),  # F1 = 2·2/(2+3) = 0.8
        ("search[red dress]", "search[red running shoes]", 0.0),  # F1 = 2·1/(2+3) = 0.4
        ("search[men red shoes size 9]", "search[red shoes for women]", 0.0),  # 2·2/(5+4) = 0.44
        ("search[a b c]", "search[b c d e f g h]", 0.0),  # "a" is an article: 2·2/(2+7) = 0.44
        ("search[red shoes]", "click[red shoes]", 0.0),
        ("red shoes", "search[red shoes]", 0.0),
        ("search[red shoes] please", "search[red shoes]", 0.0),
        ("search[x [y] z]", "search[x [y] z]", 1.0),
    ],
)
def test_webshop(action: str, expected: str, value: float) -> None:
    assert score("webshop", action, expected) == value
    assert score("webshop", action, expected, how="context") == value


def test_webshop_the_border_counts() -> None:
    one, two = "search[p q r]", "search[p q r s t u v]"  # F1 = 2·3/(3+7) = 0.6 exactly
    assert token_f1("p q r", "p q r s t u v") == 0.6
    assert score("webshop", one, two) == 1.0 and score("webshop", one, two, options={"f1": 0.61}) == 0.0


# ------------------------------------------------------------------------------------------------------------------- search-QA


@pytest.fixture(scope="module", params=["tags", "hermes", "openai"])
def searchqa(request: pytest.FixtureRequest) -> Any:
    options = {} if request.param == "tags" else {"protocol": "tool_call", "format": request.param}
    return make("searchqa", split="train", words=1, asked=True, topk=3, **options)


def test_searchqa_in_the_real_environment(searchqa: Any) -> None:
    env = searchqa
    task = next(i for i in env.tasks() if "/2hop/" in i)

    def after(action: str) -> str:
        env.reset(options={"task": task})
        return str(env.step(action)[0])

    env.reset(options={"task": task})
    expected = env.expert().act("", {})
    kind, query = read_call(expected) or ("", "")
    assert kind == "search"
    led_to = after(expected)
    title = env.hits[0].document.title.strip('"')
    assert len(documents(led_to)) == 3 and title in documents(led_to)[0]
    other, empty = env.call_text("search", query="Population of Kenya"), env.call_text("search", query="zzzz")
    answer = env.call_text("answer", text="Kenya")
    for action, value in ((expected, 1.0), (env.call_text("search", query=f"{query} please"), 1.0), (other, 0.0), (empty, 0.0), (answer, 0.0)):
        assert score("searchqa", action, expected, led_to=after(action), expert_led_to=led_to) == value, action
    assert score("searchqa", "no call", expected, led_to=after("no call"), expert_led_to=led_to) == 0.0
    # Not first, but among the first three: found all the same.
    third = documents(led_to)[2]
    assert score("searchqa", expected, expected, led_to=led_to, expert_led_to=f"Doc 1{third} and more") == 1.0
    assert score("searchqa", expected, expected, led_to=led_to, expert_led_to=f"Doc 1{third}", options={"top": 2}) == 0.0
    assert score("searchqa", expected, expected, led_to=f"Doc 1{third}", expert_led_to=led_to, options={"gold": 2}) == 0.0


def test_searchqa_answers(searchqa: Any) -> None:
    searchqa.reset(seed=0)
    said = lambda text: searchqa.call_text("answer", text=text)  # noqa: E731
    assert score("searchqa", said("the Gunung Kinabalu."), said("Gunung Kinabalu"), led_to="", expert_led_to="") == 1.0
    assert score("searchqa", said("Kinabalu"), said("Gunung Kinabalu")) == 0.0
    search = searchqa.call_text("search", query="Gunung Kinabalu")
    assert score("searchqa", search, said("Gunung Kinabalu")) == 0.0


def test_searchqa_from_a_stored_context_compares_queries() -> None:
    ask = "<search>{}</search>".format
    assert score("searchqa", ask("highest point Malaysia"), ask("Highest point of Malaysia"), how="context") == 1.0  # F1 = 6/7
    assert score("searchqa", ask("Malaysia"), ask("Highest point of Malaysia"), how="context") == 0.0  # F1 = 2/5


def test_searchqa_reads_documents_as_they_are_printed() -> None:
    tags = '\n\n<information>Doc 1(Title: "A: x (y)") one\ntwo\nDoc 2(Title: "B") Doc 7 three four …</information>\n\n'
    assert documents(tags) == ['(Title: "A: x (y)") one', '(Title: "B") Doc 7 three four']
    assert documents("Nothing was found.") == [] == documents("")
    # Cut shorter than the expert's, it is still the same document.
    cut = '<information>Doc 1(Title: "B") Doc 7 thr …</information>'
    ask = "<search>b</search>"
    assert score("searchqa", ask, ask, led_to=cut, expert_led_to='<information>Doc 1(Title: "B") Doc 7 three four</information>') == 1.0
    assert score("searchqa", ask, ask, led_to="Nothing was found.", expert_led_to="Nothing was found.") == 0.0
    with pytest.raises(ConfigError, match="is no search and no answer: 'go to shelf 1'"):
        score("searchqa", ask, "go to shelf 1")


# ------------------------------------------------------------------------------------------------------------------------- all


def test_text_is_for_any_environment() -> None:
    assert score("text", "Go  Left ", "go left") == 1.0 and score("text", "go right", "go left") == 0.0
    same = {"led_to": "You win.", "expert_led_to": "You win."}
    assert score("text", "kick door", "open door", **same) == 1.0
    assert score("text", "kick door", "open door", **same, options={"outcome": False}) == 0.0


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_the_first_decision_is_judged_by_what_came_of_it(name: str) -> None:
    """In an episode of two turns, what the first action led to is what the second one saw."""
    action = {"searchqa": "<search>x</search>", "webshop": "click[x]"}.get(name.removeprefix("functional_"), "open shelf 1")
    doc = '<information>Doc 1(Title: "X") x</information>'
    later = Step([1], False, Completion("z", [2]), "z", True, doc, 0.0, "s")
    one = episode(action, action, expert_led_to=doc, later=[later], final="elsewhere")
    assert registry.bind("reward", name)(one) == 1.0


@pytest.mark.parametrize("name", FUNCTIONAL)
@pytest.mark.parametrize("data", [{}, {"expected": {"action": "x"}}, {"expected": "x"}])
def test_without_an_expected_action_there_is_an_error_and_no_score(name: str, data: dict[str, Any]) -> None:
    trajectory = episode("x", "x")
    trajectory.task = Task("whole", "e", "train", data=data)
    with pytest.raises(ConfigError, match=r"task 'whole' carries no such thing.*sampler=pivots, explore=branch"):
        registry.bind("reward", name)(trajectory)


def test_words() -> None:
    assert FUNCTIONAL == ["functional_alfworld", "functional_searchqa", "functional_text", "functional_webshop"]
    assert normalise("The  Gulf, of a Guinea!") == "gulf of guinea"
    assert token_f1("a the", "") == 1.0 and token_f1("x", "") == 0.0
    assert token_f1("x x y", "x y y") == pytest.approx(2 * 2 / 6)
