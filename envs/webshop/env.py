"""WebShop as a Gymnasium environment: the original's shop to the letter, over official or generated products."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from agentgym.env import TextEnv, only
from agentgym.errors import DataError, EnvError, did_you_mean

from . import catalogue as catalogues
from . import render
from .goals import Drawn, Goals, Recorded, Set
from .nouns import Nouns
from .shop import Clickable, Session, Shop
from .shopper import Shopper
from .tasks import Tasks
from .types import Goal, Page, Place

Observation = Literal["text", "text_rich", "html", "url", "browser", "browser_aria"]
BROWSER = ("browser", "browser_aria")
GENERATED = 1000  # products, where nobody says how many
_NAMED = 20  # clickables that a feedback names


class Visit(Protocol):
    """A shopper in the shop: `shop.Session`, or `browser.BrowserVisit`."""

    goal: Goal
    place: Place
    reward_info: dict[str, Any] | None

    @property
    def clickables(self) -> dict[str, Clickable]: ...
    @property
    def page(self) -> Page: ...
    def act(self, action: str) -> bool: ...


class WebShopEnv(TextEnv):
    """Find and buy what an instruction describes: `search[words]`, `click[text]`. arXiv 2207.01206.

    data         None: generated products; else the folder of the official files (may say "$WEBSHOP_DATA")
    products     how many: generated (default 1,000), or the first of the official file (default: all)
    size         generated only: mini (short pages for small models) or full
    goals        official files only: synthetic, human, or both; default: human where these are the full data, else both
    split        all | train | eval | test; default: train, with `replay` all
    limit        only the first so many goals of the split (they stand in a fixed random order), or a map split → so many
    observation  text | text_rich | html | url; in a real Chromium: browser (the visible text) | browser_aria (the accessibility tree)
    screenshots  browser modes: a folder for a picture after every step, whose path is in info["screenshot"] and in the trajectory
    replay       a folder with goals.json.gz and prices.json of a recorded run of the original. Such a session goes on after a purchase, as it did
    draw         the seed of prices and ceilings; 0 gives what the original draws after random.seed(0)
    feedback     tell what is possible after an invalid action (the original shows the same page again)
    max_steps    the episode is truncated in the step that reaches it; None: never
    reward       score: 0 to 1 as in the original; success: 1 for a score of 1, else 0
    scale        factor of the reward
    state        info["state"], the key of anchor groups: `observation`, or `place` (also knows the options that were chosen)
    per_page     products on a page of results (the original's 10)
    nouns        a file with the nouns of titles (see nouns.py), found in `replay` by itself

    `info`: task_id, task_type, goal (the instruction), state, admissible, success, valid, available_actions, url, reward_info (of the last
    purchase, else None), nouns (where the title score's nouns are from: known, lists, spacy, heuristic).
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        products: int | None = None,
        size: Literal["mini", "full"] | None = None,
        goals: Literal["synthetic", "human", "both"] | None = None,
        split: str | None = None,
        limit: int | Mapping[str, int] | None = None,
        observation: Observation = "text",
        replay: str | os.PathLike[str] | None = None,
        draw: int | None = None,
        feedback: bool = True,
        max_steps: int | None = 15,
        reward: Literal["score", "success"] = "score",
        scale: float = 1.0,
        state: Literal["observation", "place"] = "observation",
        per_page: int = 10,
        nouns: str | os.PathLike[str] | None = None,
        screenshots: str | os.PathLike[str] | None = None,
    ) -> None:
        self._options = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(max_observation=10_000_000)
        _one_of("observation", observation, get_args(Observation))
        _one_of("reward", reward, ("score", "success"))
        _one_of("state", state, ("observation", "place"))
        _one_of("size", size, (None, "mini", "full"))
        _one_of("goals", goals, (None, "synthetic", "human", "both"))
        split = split or ("all" if replay else "train")
        most = limit.get(split) if isinstance(limit, Mapping) else limit
        for name, value in (("limit", most), ("max_steps", max_steps), ("products", products), ("per_page", per_page)):
            if value is not None and value < 1:
                raise EnvError(f"WebShopEnv({name}={value}): it is at least 1")
        only("WebShopEnv", "data=None (generated products)", data is None, size=size)
        only("WebShopEnv", "data=FOLDER (official files)", data is not None, goals=goals, replay=replay, nouns=nouns)
        self.blocking = observation in BROWSER
        only("WebShopEnv", "observation='browser' or 'browser_aria'", self.blocking, screenshots=screenshots)
        if self.blocking:
            from .chromium import require

            require()
        only("WebShopEnv", "replay=None (a recording has its prices)", replay is None, draw=draw)
        self._catalogue = _catalogue(_path(data), products, size or "full")
        sets = _goal_sets(self._catalogue, data is None, goals, _path(replay), draw or 0)
        self.task_set = _tasks(sets, split, most)
        self.shop = _shop(self._catalogue, _path(nouns), _path(replay), per_page)
        self.observation, self.feedback, self.max_steps, self.scale = observation, feedback, max_steps, scale
        self._screenshots = _path(screenshots)
        self._success_only, self._place_state, self._goes_on = reward == "success", state == "place", replay is not None
        self._visit: Visit | None = None
        self._goals: Goals | None = None
        self._playing, self._steps, self._task, self._nouns = False, 0, "", ""

    def tasks(self) -> list[str]:
        """Return the ids of all tasks of the split, in a fixed order."""
        return self.task_set.ids()

    def expert(self) -> Shopper:  # type: ignore[override]
        """Return a shopper for one episode: it knows the goal's product, and goes about it as a careful customer would."""
        return Shopper(self.shop, lambda: self._here, self._would_earn)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the task `options={"task": id}`, or one drawn by `seed` or the environment's own generator, by the goals' weights."""
        self._playing = False
        goals, number = self._pick(seed, options)
        self._task = f"{goals.kind}/{number}"
        self._end_visit()
        self._goals, goal = goals, goals.goal(number)
        self._visits = uuid.uuid4().hex[:8] if self._screenshots else ""
        self._visit = self._enter(goals, goal)
        self._nouns = self.shop.nouns_from(goal, "")
        self._steps, self._playing = 0, True
        observation = self._observe()
        return observation, self._info(observation, valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one action. One that is not possible earns 0, changes nothing, and counts as a step."""
        if not isinstance(action, str):
            raise EnvError(f"WebShopEnv.step takes an action as text, got {type(action).__name__}: {action!r}")
        if self._visit is None or not self._playing:
            raise EnvError("WebShopEnv.step: no episode is going on (it ended or was never begun); call reset() first")
        valid = self._visit.act(action)
        self._steps += 1
        terminated = valid and self._visit.place.kind == "done"
        truncated = not terminated and self.max_steps is not None and self._steps >= self.max_steps
        self._playing = self._goes_on or not (terminated or truncated)
        if terminated:
            self._nouns = self.shop.nouns_from(self._visit.goal, self._visit.place.asin)
        page = self._observe()
        observation = page if valid or not self.feedback else f"{self._what_is_possible(action)}\n{page}"
        return observation, self._earned() if terminated else 0.0, terminated, truncated, self._info(page, valid=valid)

    def close(self) -> None:
        """End the episode; a browser's pages are closed."""
        self._playing = False
        self._end_visit()

    def __getstate__(self) -> dict[str, Any]:
        """Return the options and where the episode stands: what instances share is opened again by whoever unpickles."""
        visit = self._visit
        if visit is not None and not isinstance(visit, Session):
            raise EnvError("WebShopEnv: an episode in a browser cannot be copied; reset() or close() first")
        kept = {name: getattr(self, name) for name in ("_playing", "_steps", "_task", "_nouns", "_np_random", "_np_random_seed")}
        stands = None if visit is None else (visit.place, visit.visited, visit.reward_info)
        return {"options": self._options, "kept": kept, "stands": stands}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["options"])  # type: ignore[misc]
        self.__dict__.update(state["kept"])
        if state["stands"] is not None:
            self._goals, number = self.task_set.find(self._task)
            visit = Session(self.shop, self._goals, self._goals.goal(number))
            visit.place, visit.visited, visit.reward_info = state["stands"]
            self._visit = visit

    # -- inside ---------------------------------------------------------------------------------------------------------------------------

    def _pick(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Goals, int]:
        wanted = (options or {}).get("task")
        if wanted is not None and set(options or {}) == {"task"}:
            super(TextEnv, self).reset(seed=seed)
            return self.task_set.find(wanted)
        self.pick_task(seed, options, ["one"])  # seeds, and refuses unknown options
        return self.task_set.draw(float(self.np_random.random()))

    def _enter(self, goals: Goals, goal: Goal) -> Visit:
        if self.blocking:
            from .browser import BrowserVisit

            return BrowserVisit(self.shop, goals, goal, snapshot="aria" if self.observation == "browser_aria" else "text")
        return Session(self.shop, goals, goal)

    def _end_visit(self) -> None:
        if self._visit is not None and hasattr(self._visit, "close"):
            self._visit.close()
        self._visit = None

    @property
    def _here(self) -> Visit:
        if self._visit is None:
            raise EnvError("WebShopEnv: no episode is going on; call reset() first")
        return self._visit

    def _would_earn(self, asin: str, options: dict[str, str]) -> dict[str, Any]:
        assert self._goals is not None
        return self.shop.buy(self._goals, self._here.goal, asin, options)

    @property
    def _url(self) -> str:
        return render.url(self._here.place, self._task.partition("/")[2])

    def _observe(self) -> str:
        visit = self._here
        if self.observation == "text":
            return render.text(visit.page)
        if self.observation == "text_rich":
            return render.rich(visit.page)
        if self.observation == "url":
            return self._url
        if self.observation == "html":
            from .html import page_html

            return page_html(visit.page, self._task.partition("/")[2])
        return visit.observation()  # type: ignore[attr-defined,no-any-return]

    def _earned(self) -> float:
        info = self._here.reward_info
        assert info is not None
        return self.scale * (float(info["reward"] == 1.0) if self._success_only else info["reward"])

    def _what_is_possible(self, action: str) -> str:
        names = [f"click[{name}]" for name in self._here.clickables if name != "search"]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        shown = action if len(action) <= 60 else action[:60] + "…"
        clicks = f", {', '.join(names[:_NAMED])}{more}" if names else ""
        return f"Not possible here: {' '.join(shown.split())}. Possible: search[words]{clicks}."

    def _info(self, observation: str, *, valid: bool) -> dict[str, Any]:
        visit = self._here
        names = list(visit.clickables)
        bar = visit.place.kind == "index"
        bought = visit.place.kind == "done"
        earned = visit.reward_info
        info: dict[str, Any] = {
            "task_id": self._task,
            "task_type": self._task.partition("/")[0],
            "goal": visit.goal.instruction,
            "state": f"{self._task} {self._url}" if self._place_state else f"{self._task} {observation}",
            "admissible": [f"search[{visit.goal.instruction.translate(_NO_BRACKETS)}]"] if bar else [f"click[{name}]" for name in names],
            "success": bought and earned is not None and earned["reward"] == 1.0,
            "valid": valid,
            "available_actions": {"has_search_bar": bar, "clickables": names},
            "url": self._url,
            "reward_info": earned,
            "nouns": self._nouns,
        }
        kept = {"reward_info": earned, "nouns": self._nouns} if bought else {}
        if self._screenshots is not None:
            info["screenshot"] = kept["screenshot"] = self._picture(self._screenshots)
        return {**info, "keep": kept}

    def _picture(self, folder: Path) -> str:
        """Save what the browser shows; return the file's path."""
        file = folder / f"{self._task.replace('/', '-')}-{self._visits}-{self._steps:03d}.png"
        picture = self._here.screenshot()  # type: ignore[attr-defined]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(picture)
        except OSError as e:
            raise EnvError(f"webshop: cannot write the screenshot {file}: {e}") from e
        return str(file)


_NO_BRACKETS = str.maketrans("[]\n", "() ")


def _path(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    path = os.path.expandvars(os.fspath(folder))
    if path.startswith("$"):
        raise DataError(f"webshop: {os.fspath(folder)!r} names an environment variable that is not set; set it to the folder of the official files")
    return Path(path).expanduser().resolve()


def _one_of(option: str, got: Any, allowed: Sequence[Any]) -> None:
    if got not in allowed:
        names = [a for a in allowed if a is not None]
        raise EnvError(f"WebShopEnv({option}={got!r}): it is one of {', '.join(names)}.{did_you_mean(str(got), names)}")


# Instances share these: hundreds of environments of one catalogue open it once. What they hold never changes.


@functools.lru_cache(maxsize=16)
def _catalogue(data: Path | None, products: int | None, size: str) -> catalogues.Catalogue:
    return catalogues.open_generated(products or GENERATED, size) if data is None else catalogues.open_files(data, products)


@functools.lru_cache(maxsize=16)
def _goal_sets(catalogue: catalogues.Catalogue, generated: bool, wanted: str | None, replay: Path | None, draw: int) -> tuple[Goals, ...]:
    kinds: tuple[Set, ...]
    if generated:
        kinds = ("generated",)
    elif wanted in ("synthetic", "human"):
        kinds = (wanted,)  # type: ignore[assignment]
    elif wanted is None and replay is None and len(catalogue.wishes) >= 2_000:
        kinds = ("human",)
    else:
        kinds = ("synthetic", "human")
    return tuple(Recorded(catalogue, k, replay) if replay else Drawn(catalogue, k, draw) for k in kinds)


@functools.lru_cache(maxsize=64)
def _tasks(sets: tuple[Goals, ...], split: str, limit: int | None) -> Tasks:
    return Tasks(sets, split, limit)


@functools.lru_cache(maxsize=16)
def _shop(catalogue: catalogues.Catalogue, nouns: Path | None, replay: Path | None, per_page: int) -> Shop:
    files = [nouns] if nouns else sorted(replay.glob("title_nouns*.jsonl*")) if replay else []
    return Shop(catalogue, Nouns(files), per_page=per_page)
