"""The real engine in its own process, and the comparison with ours. Skipped where the extra `alfworld` is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.envs.alfworld import alfworld, oracle
from agentgym.envs.alfworld import textworld as real
from agentgym.envs.alfworld.data import open_split
from agentgym.errors import EnvError

missing = real.missing_packages()
needs_real_engine = [
    pytest.mark.oracle,
    pytest.mark.skipif(bool(missing), reason=f"the extra `alfworld` is not installed ({', '.join(missing)})"),
]
pytestmark = pytest.mark.filterwarnings("ignore:.*render fps.*")


@pytest.mark.skipif(not missing, reason="the extra `alfworld` is installed")
def test_without_the_packages_the_extra_is_named() -> None:
    with pytest.raises(EnvError, match=r"textworld.*pip install 'agentgym\[alfworld\]'"):
        alfworld(engine="textworld")


@pytest.mark.usefixtures("own_cache")
class TestRealEngine:
    pytestmark = needs_real_engine

    @pytest.mark.parametrize("dialect", ["move", "put"])
    def test_it_agrees_with_ours_on_official_games(self, alfworld_data: Path, dialect: str) -> None:
        split = open_split(alfworld_data, "valid_seen")
        games = [(task, split.source(task)) for task in split.ids()[3::60]]
        report = oracle.compare(games, 30, 1, dialect=dialect)  # type: ignore[arg-type]
        assert (report.games, report.steps, report.differences) == (len(games), 30 * len(games), [])

    def test_it_agrees_with_ours_on_generated_games(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("ALFWORLD_DATA", raising=False)
        assert oracle.main(2, None, "move", 0) == 0

    def test_it_plays_as_an_environment_and_the_caches_change_nothing(self) -> None:
        said = []
        for caches in (True, False):
            env = alfworld(engine="textworld", caches=caches, max_steps=2)
            said.append([env.reset(seed=1), env.step("look"), env.step("fly away")])
            assert env.blocking and said[-1][2][3]
            env.close()
        assert said[0] == said[1]

    def test_a_game_that_hangs_is_given_up(self) -> None:
        env = alfworld(engine="textworld", timeout=0.01)
        start = time.monotonic()
        with pytest.raises(EnvError, match=r"no answer within 0\.01 s"):
            env.reset()
        assert time.monotonic() - start < 5
        env.close()

    def test_a_game_that_it_cannot_play_is_an_error_with_its_words(self, tiny_source: Callable[..., str]) -> None:
        engine = real.TextWorldEngine(dialect="put")
        with pytest.raises(EnvError, match=r"room 7.*dialect 'move' only"):
            engine.load(tiny_source({"1": {"shelf_1": ""}}), source="room 7")

    def test_its_process_ends_with_it(self) -> None:
        env = alfworld(engine="textworld")
        env.reset()
        stop = env._real._stop  # type: ignore[union-attr]
        worker = stop.peek()[2][0]  # type: ignore[union-attr,index]
        assert worker.poll() is None
        env.close()
        assert worker.poll() is not None
        assert env.reset()  # a new one
        env.close()
