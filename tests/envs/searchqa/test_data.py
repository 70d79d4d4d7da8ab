"""Every row format, the real files, and what is said about a row that is no question."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentgym.envs.searchqa.data import Question, load
from agentgym.errors import DataError

Write = Callable[..., Path]
PROMPT = "Answer the given question. Use <search> query </search>, for example <answer> Beijing </answer>. Question: who wrote Faust?\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a writer of rows into a file whose ending says the format."""

    def to(name: str, *rows: Any) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(list(rows)), file)
            return file
        text = json.dumps(list(rows)) if ".json" in file.suffixes or name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
        file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return file

    return to


# --- real files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n", "source", "split", "first"),
    [
        ("NQ-open.dev.jsonl", 3610, "nq", "dev", ("when was the last time anyone was on the moon", ("14 December 1972 UTC", "December 1972"))),
        ("flashrag_nq_test.jsonl", 17, "nq", "test", ("who got the first nobel prize in physics", ("Wilhelm Conrad Röntgen",))),
        ("hotpot_dev_v1_simplified.json", 7405, "hotpotqa", "dev", ("Were Scott Derrickson and Ed Wood of the same nationality?", ("yes",))),
        (
            "bamboogle_test.parquet",
            125,
            "bamboogle",
            "test",
            ("Who was president of the United States in the year that Citibank was founded?", ("james madison",)),
        ),
    ],
)
def test_real_rows(searchqa_shared: Path, name: str, n: int, source: str, split: str, first: tuple[str, tuple[str, ...]]) -> None:
    found = load(searchqa_shared / name)
    assert len(found) == n == len({question.id for question in found})
    assert {(question.source, question.split) for question in found} == {(source, split)}
    assert (found[0].question, found[0].answers) == first
    assert all(q.question.strip() and q.answers and all(a.strip() for a in q.answers) for q in found)
    assert load(searchqa_shared / name, split=split, limit=5) == found[:5]
    assert load(searchqa_shared / name, limit=n + 1) == found


def test_a_real_corpus_is_no_question_set(searchqa_shared: Path) -> None:
    with pytest.raises(DataError, match=r"searchr1_corpus.jsonl, row 1 has no question .*golden_answers"):
        load(searchqa_shared / "searchr1_corpus.jsonl")


# --- formats -------------------------------------------------------------------------------------------------------

ROWS: dict[str, dict[str, Any]] = {
    "flashrag": {"id": "test_7", "question": "who wrote Faust?", "golden_answers": ["Goethe"]},
    "search_r1": {
        "data_source": "nq",
        "prompt": [{"role": "user", "content": PROMPT}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Goethe"]}},
        "extra_info": {"split": "test", "index": 7},
    },
    "search_r1_with_question": {
        "data_source": "nq",
        "question": "who wrote Faust?",
        "prompt": [{"role": "user", "content": "Question: something else"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Goethe"]}},
        "extra_info": {"split": "test", "index": 7},
    },
    "ground_truth_as_a_text": {
        "id": "test_7",
        "data_source": "chiayewken/nq",
        "prompt": [{"role": "system", "content": "Be <b>brief</b>."}, {"role": "user", "content": "who wrote Faust?"}],
        "reward_model": {"style": "rule", "ground_truth": "Goethe"},
    },
    "verl_agent": {
        "id": "test_7",
        "prompt": [{"role": "user", "content": ""}],
        "env_kwargs": {"ground_truth": {"target": ["Goethe"]}, "question": "who wrote Faust?", "data_source": "nq"},
    },
    "nq_open": {"id": "test_7", "question": "who wrote Faust?", "answer": ["Goethe"]},
    "hotpotqa": {"_id": "test_7", "question": " who wrote Faust? ", "answer": "Goethe"},
    "generic": {"id": "test_7", "question": "who wrote Faust?", "answers": ["Goethe", "Goethe "]},
    "triviaqa": {"id": "test_7", "question": "who wrote Faust?", "answer": {"value": "Goethe", "aliases": ["Goethe"]}},
    "squad": {"id": "test_7", "question": "who wrote Faust?", "answers": {"text": ["Goethe"], "answer_start": [3]}},
    "prompt_as_a_text": {"id": "test_7", "prompt": PROMPT, "answer": "Goethe"},
}


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz"])
@pytest.mark.parametrize("format", ROWS)
def test_every_format_gives_the_same_question(write: Write, format: str, ending: str) -> None:
    (question,) = load(write(f"nq_test{ending}", ROWS[format]))
    assert question == Question("nq/test_7", "who wrote Faust?", ("Goethe",), "nq", "test", question.extra)


def test_the_source_is_the_rows_own_else_the_files_else_the_folders(write: Write) -> None:
    row = {"question": "q", "answer": "a"}
    for name, source in {
        "nq/test.jsonl": "nq",
        "flashrag_popqa.jsonl": "popqa",
        "2wikimultihopqa_dev.json": "2wikimultihopqa",
        "hotpot_dev.json": "hotpotqa",
        "TriviaQA-train.jsonl": "triviaqa",
        "musique.parquet": "musique",
        "quiz.jsonl": "quiz",
    }.items():
        assert load(write(name, row))[0].source == source, name
    mixed = load(write("nq_mixed.jsonl", row | {"data_source": "popqa"}, row | {"data_source": "lab/quiz"}, row))
    assert [question.source for question in mixed] == ["popqa", "quiz", "nq"]


def test_ids_are_stable_and_unique(write: Write) -> None:
    rows = [{"question": f"q{i}", "answer": "a"} for i in range(3)]
    ids = [question.id for question in load(write("quiz.jsonl", *rows))]
    assert len(set(ids)) == 3
    assert [q.id for q in load(write("quiz.json", *reversed(rows)))] == ids[::-1]  # an id does not depend on the place
    assert [q.id for q in load(write("quiz.jsonl", rows[0], *rows))] == [ids[0], f"{ids[0]}#2", *ids[1:]]
    # Search-R1's merged file has `train_0` of several sets.
    merged = [{"id": "train_0", "data_source": source, "question": "q", "answer": "a"} for source in ("nq", "hotpotqa", "nq")]
    assert [q.id for q in load(write("merged.jsonl", *merged))] == ["nq/train_0", "hotpotqa/train_0", "nq/train_0#2"]


def test_splits(write: Write) -> None:
    rows = [{"id": f"{split}_{i}", "question": "q", "answer": "a"} for split in ("train", "dev", "test") for i in range(2)]
    file = write("quiz.jsonl", *rows)
    assert [q.split for q in load(file)] == ["train", "train", "dev", "dev", "test", "test"]
    assert [q.id for q in load(file, split="validation")] == ["quiz/dev_0", "quiz/dev_1"]
    assert [q.id for q in load(file, split="test", limit=1)] == ["quiz/test_0"]
    unsaid = write("other.jsonl", {"id": "7", "question": "q", "answer": "a"})
    assert [q.split for q in load(unsaid)] == [""]
    assert [q.split for q in load(unsaid, split="train")] == ["train"]
    with pytest.raises(DataError, match=r"no questions of split 'train'; it has dev: 1"):
        load(write("quiz_dev.jsonl", {"question": "q", "answer": "a"}), split="train")


def test_plain_fields_are_kept(write: Write) -> None:
    (question,) = load(write("quiz.jsonl", {"question": "q", "answer": 1066, "type": "bridge", "level": 2, "context": [["long"]]}))
    assert question.answers == ("1066",)
    assert question.extra == {"type": "bridge", "level": 2}


def test_the_embedded_set_has_a_name() -> None:
    assert len(load("factbook", split="test", limit=3)) == 3
    assert {question.split for question in load("factbook")} == {"train", "test"}


# --- what is wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"answer": "a"}, "has no question in {'answer': 'a'}; expected a question"),
        ({"question": " ", "answer": "a"}, "has no question"),
        ({"prompt": [{"role": "user", "content": "Use <search>"}], "answer": "a"}, "has no question"),
        ({"question": "q"}, "has no right answers"),
        ({"question": "q", "answer": []}, r"answer is \[\]; expected a text or a list of texts, none of them empty"),
        ({"question": "q", "golden_answers": ["a", " "]}, "golden_answers is"),
        ({"question": "q", "answer": ""}, "answer is ''"),
        ({"question": "q", "answer": True}, "answer is True"),
        ({"question": "q", "answer": [["a"]]}, "answer is"),
        ({"question": "q", "reward_model": {"ground_truth": {"target": []}}}, "reward_model.ground_truth is"),
        ({"question": "q", "reward_model": {"ground_truth": {"goal": ["a"]}}}, "reward_model.ground_truth is"),
        ({"question": "q", "answer": "a", "is_impossible": True}, "marked as not answerable"),
        ({"question": "q", "answer": "a", "answerable": False}, "marked as not answerable"),
        (["q", "a"], r"is \['q', 'a'\]; expected an object"),
    ],
)
def test_a_bad_row_is_named(write: Write, row: Any, says: str) -> None:
    with pytest.raises(DataError, match=r"bad\.jsonl, row 2:? .*" + says):
        load(write("bad.jsonl", {"question": "q", "answer": "a"}, row))


def test_damaged_and_missing_files_are_named(tmp_path: Path, write: Write) -> None:
    def refused(file: Path | str, says: str, **options: Any) -> None:
        with pytest.raises(DataError, match=says):
            load(file, **options)

    refused(tmp_path / "none.jsonl", "there is no file .*none.jsonl")
    refused(tmp_path / "rows.csv", r"cannot tell the format of .*rows.csv.*\.jsonl")
    (tmp_path / "cut.jsonl").write_text('{"question": "q", "answer": "a"}\n{"question": ')
    refused(tmp_path / "cut.jsonl", r"cut.jsonl, row 2 is no JSON")
    (tmp_path / "text.json").write_text('{"question": "q", "answer": "a"}')
    refused(tmp_path / "text.json", "expected a list of JSON objects")
    (tmp_path / "empty.jsonl").write_text("\n")
    refused(tmp_path / "empty.jsonl", "has no questions: it is empty")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"question": "q"}' * 100)[:-20])
    refused(tmp_path / "cut.jsonl.gz", "cannot read .*cut.jsonl.gz")
    (tmp_path / "no.parquet").write_bytes(b"PAR1 no")
    refused(tmp_path / "no.parquet", "cannot read .* as parquet")
    (tmp_path / "latin.jsonl").write_bytes('{"question": "é"}'.encode("latin-1"))
    refused(tmp_path / "latin.jsonl", "expected UTF-8 text")
    refused(write("fine.jsonl", {"question": "q", "answer": "a"}), "limit=0", limit=0)


def test_squads_wrapper_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "wrapped.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"data": [{"question": "q", "answer": "a"}]}).encode())
    assert load(tmp_path / "wrapped.json")[0].question == "q"


def test_without_a_network_a_hubs_name_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"cannot load nobody/nothing \(nq\), split 'test' from the hub: .*give the path of a file"):
        load("hub:nobody/nothing:nq", split="test")
    with pytest.raises(DataError, match="names no data set; expected hub:owner/name"):
        load("hub:nothing")
