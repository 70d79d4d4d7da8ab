"""Splits on disk: the official filter, the cache, damaged files, and what is said when the data is not there."""

from __future__ import annotations

import hashlib
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.envs.alfworld.cache import cache_dir
from agentgym.envs.alfworld.data import OFFICIAL_COUNTS, Games, find_root, open_split
from agentgym.envs.alfworld.engine import Engine
from agentgym.errors import DataError, TaskError

ROOMS = {"1": {"fridge_1": "apple_1"}, "2": {"countertop_1": ""}}
Source = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, tiny_source: Source, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small download: two games to play in train, and one of each kind that the official filter leaves out."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    games = {
        "train/pick_and_place_simple-Apple-None-CounterTop-1/trial_2": tiny_source(ROOMS),
        "train/pick_and_place_simple-Apple-None-CounterTop-1/trial_1": tiny_source(ROOMS, "hot apple > countertop"),
        "train/pick_and_place_simple-AppleSliced-None-CounterTop-1/trial_1": tiny_source(ROOMS),
        "train/pick_and_place_with_movable_recep-Apple-Mug-CounterTop-1/trial_1": tiny_source(ROOMS),
        "train/unsolvable-1/trial_1": tiny_source(ROOMS).replace('"solvable": true', '"solvable": false'),
        "train/unsolvable-1/trial_2": tiny_source(ROOMS).replace(', "solvable": true', ""),
    }
    for task, text in games.items():
        trial = tmp_path / "json_2.1.1" / task
        trial.mkdir(parents=True)
        (trial / "game.tw-pddl").write_text(text)
    (tmp_path / "json_2.1.1/train/never_made-1/trial_1").mkdir(parents=True)
    return tmp_path


def games(folder: Path) -> Games:
    """Open the train split, past the cache within the process."""
    return Games(folder / "json_2.1.1", "train")


def cache_files(folder: Path) -> list[Path]:
    return sorted((folder / "cache/alfworld").iterdir())


def test_the_official_filter_and_a_fixed_order(folder: Path) -> None:
    ids = games(folder).ids()
    assert ids == [f"train/pick_and_place_simple-Apple-None-CounterTop-1/trial_{k}" for k in (1, 2)]
    assert [games(folder).task_type(i) for i in ids] == ["pick_heat_then_place_in_recep", "pick_and_place_simple"]


def test_a_manifest_hashes_the_sorted_ids(folder: Path) -> None:
    manifest = games(folder).manifest()
    assert manifest.sha256 == hashlib.sha256("\n".join(sorted(manifest.ids)).encode()).hexdigest()
    assert (manifest.split, manifest.official) == ("train", 3553)


def test_the_cache_is_used_and_notices_changes(folder: Path, tiny_source: Source) -> None:
    first = games(folder)
    (cached,) = cache_files(folder)
    file = folder / "json_2.1.1" / first.ids()[0] / "game.tw-pddl"
    assert games(folder).game(first.ids()[0]).task == "do it"
    assert cache_files(folder) == [cached]
    file.write_text(tiny_source(ROOMS, task="do that"))
    assert games(folder).game(first.ids()[0]).task == "do that"
    assert len(cache_files(folder)) == 1 and cache_files(folder) != [cached]  # the old file is gone
    assert first.game(first.ids()[0]).task == "do it"  # who has it open keeps what it read


def test_a_damaged_file_is_named_and_left_out(folder: Path) -> None:
    broken = games(folder).ids()[0]
    file = folder / "json_2.1.1" / broken / "game.tw-pddl"
    file.write_text(file.read_text()[:500])
    for _ in range(2):  # when the cache is built, and when it is read
        with pytest.warns(UserWarning, match=r"left out 1 damaged game file.*trial_1$"):
            split = games(folder)
        assert len(split.ids()) == 1
        with pytest.raises(DataError, match=r"trial_1.*damaged.*not valid JSON"):
            split.game(broken)


@pytest.mark.parametrize("spoil", [lambda b: b[:100], lambda b: b[:-40], lambda b: b"", lambda b: b"x" * len(b)])
def test_a_damaged_cache_is_built_again(folder: Path, spoil: Callable[[bytes], bytes]) -> None:
    ids = games(folder).ids()
    (cached,) = cache_files(folder)
    cached.write_bytes(spoil(cached.read_bytes()))
    with pytest.warns(UserWarning, match="building it again"):
        assert games(folder).ids() == ids
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Engine(games(folder).game(ids[0])).reset()


def test_a_cache_that_cannot_be_written_costs_time_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a file").write_text("")
    monkeypatch.setenv("AGENTGYM_CACHE", str(folder / "a file"))
    with pytest.warns(UserWarning, match="cannot write the cache"):
        split = games(folder)
    assert Engine(split.game(split.ids()[0])).reset()


def test_many_may_build_at_once(folder: Path) -> None:
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(games(folder).ids())) for _ in range(8)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8 and all(ids == found[0] for ids in found)
    assert [file.suffix for file in cache_files(folder)] == [".games"]


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("AGENTGYM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "agentgym"


def test_the_folder_or_its_parent_or_a_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = (folder / "json_2.1.1").resolve()
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    assert find_root(folder) == find_root(folder / "json_2.1.1") == find_root("$ALFWORLD_DATA") == root


def test_missing_data_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    for data in (tmp_path, "$ALFWORLD_DATA"):
        with pytest.raises(TaskError, match=r"(?s)json_2\.1\.1.*ALFWORLD_DATA.*data: null"):
            open_split(data, "train")


def test_missing_split_and_unknown_ids(folder: Path) -> None:
    with pytest.raises(TaskError, match="no folder 'valid_seen'; it has: train"):
        open_split(folder, "valid_seen")
    with pytest.raises(TaskError, match=r"no split 'valid_sen'.*valid_seen"):
        open_split(folder, "valid_sen")
    with pytest.raises(TaskError, match=r"no game .*Did you mean 'train/pick_and_place_simple-Apple"):
        games(folder).game("train/pick_and_place_simple-Apple-None-CounterTop-1/trial_3")


def test_the_official_data(alfworld_data: Path) -> None:
    split = open_split(alfworld_data, "valid_seen")
    assert len(split.ids()) == OFFICIAL_COUNTS["valid_seen"] == 140 and not split.damaged
    assert split.manifest().sha256 == "cc3d2e964ba360c43049c459137d04711d8ef1ac8fc2ecdf704af677f6f20304"
    start = time.perf_counter()
    for task in split.ids():
        assert task.split("/")[1].startswith(split.game(task).task_type)
    assert (time.perf_counter() - start) / 140 < 0.01
