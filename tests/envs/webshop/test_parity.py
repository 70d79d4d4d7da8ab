"""Our shop and the original, step by step: the recorded episodes over the real 1,000 products."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.webshop.env import WebShopEnv

# Where we leave the original on purpose or must, by cause; each is counted.
CRASHED = "the original crashed (a search for <a>, for <c> alone, or for more than 1,024 different words)"
CONFUSED = "the original took a word of the search for the kind of the page"  # "item_page pillow": it looks for page names anywhere in the address
NOUNS = "the title's nouns are from the heuristic: no recorded list has them, and spaCy is not installed"
FAITHFUL = ("observation", "available_actions", "url", "reward", "done", "reward_info")
ON_NOUNS = ("title_score", "r_type", "reward")


def recorded(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the records of all files of a kind (further ones may have been put beside those that are given)."""
    files = sorted((folder / "transcripts").glob(f"{name}_*.jsonl.gz"))
    found = [json.loads(line) for f in files for line in gzip.decompress(f.read_bytes()).decode().splitlines()]
    assert found, f"no {name}_*.jsonl.gz in {folder / 'transcripts'}"
    return found


@pytest.fixture(scope="module")
def shops(webshop_data: Path) -> Callable[[str], WebShopEnv]:
    made: dict[str, WebShopEnv] = {}

    def shop(observation: Any) -> WebShopEnv:
        if observation not in made:
            made[observation] = WebShopEnv(
                data=webshop_data, products=1000, observation=observation, replay=webshop_data / "transcripts", feedback=False, max_steps=None
            )
        return made[observation]

    return shop


def ours(env: WebShopEnv, step: dict[str, Any], task: str) -> dict[str, Any]:
    """Take a recorded step; return what a record of it would hold."""
    if step["action"] is None:
        observation, info = env.reset(options={"task": task})
        reward: float | None = None
        done = False
    else:
        observation, reward, done, truncated, info = env.step(step["action"])
        assert not truncated
    return {
        "observation": observation,
        "available_actions": info["available_actions"],
        "url": info["url"],
        "reward": reward,
        "done": done,
        "reward_info": info["reward_info"] if done else None,
    }


def differences(env: WebShopEnv, episode: dict[str, Any]) -> Iterator[str]:
    task = f"{episode['human_or_synthetic']}/{episode['goal_index']}"
    for number, step in enumerate(episode["steps"]):
        mine = ours(env, step, task)
        if step.get("error"):
            yield CRASHED
            return
        if mine["done"] and env._info("", valid=True)["nouns"] == "heuristic" and mine["reward_info"] != step["reward_info"]:
            yield NOUNS
            mine["reward_info"] |= {name: step["reward_info"][name] for name in ON_NOUNS}
            mine["observation"] = mine["observation"].replace(f"{mine['reward']}", f"{step['reward']}")
            mine["reward"] = step["reward"]
        if mine["url"] != step["url"] and {"item_page", "item_sub_page", "search_results"} & set(env._here.place.keywords):
            yield CONFUSED
            return  # from here on the two are at different places
        for name in FAITHFUL:
            if mine[name] != step.get(name):
                where = f"{name} of episode {episode['episode']}, step {number} ({step['action']!r:.60})"
                yield f"{where}: {mine[name]!r:.300} instead of {step.get(name)!r:.300}"


@pytest.mark.parametrize("mode", ["text", "rich"])
def test_recorded_episodes(shops: Callable[[str], WebShopEnv], webshop_data: Path, mode: str) -> None:
    episodes = recorded(webshop_data, f"transcripts_{mode}")
    env = shops({"text": "text", "rich": "text_rich"}[mode])
    found = Counter(d for e in episodes for d in differences(env, e))
    bought = sum(bool(s.get("done")) for e in episodes for s in e["steps"])
    by_cause = {cause: found.pop(cause, 0) for cause in (CRASHED, CONFUSED, NOUNS)}
    steps = sum(len(e["steps"]) for e in episodes)
    print(f"{mode}: {len(episodes)} episodes, {steps:,} steps, {bought} purchases; {by_cause}")
    assert not found, f"{sum(found.values())} differences in {steps:,} steps:\n" + "\n".join(list(found)[:10])
    assert by_cause[CRASHED] == sum(any(s.get("error") for s in e["steps"]) for e in episodes)
    assert by_cause[CONFUSED] <= 1 + len(episodes) // 100 and by_cause[NOUNS] <= bought / 3
