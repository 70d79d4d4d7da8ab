"""Where hindsight goes in the ids of a prompt, for the ways in which chat templates are written; and which ids a text covers."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.errors import DataError
from agentgym.trainers.hindsight import Chat, Context, Hint, rectangles, token_spans, units
from agentgym.types import Message

EVERY = ("tiny", "turns", "default", "bos", "inside", "refuses")


def insert(prompt, slot, ids):
    return prompt[: slot.at] + slot.before + ids + slot.after + prompt[slot.at :]


@pytest.mark.parametrize("template", EVERY)
def test_the_end_of_a_turn_is_found_and_the_result_is_what_the_template_writes(renderers, template):
    renderer = renderers[template]
    chat = Chat(renderer)
    hint = chat.encode("\nA key is here")
    for prompt in (renderer.render([Message("user", "go left")]), renderer.extend([Message("user", "go left")], ended=True)):
        made = insert(prompt, chat.turn(prompt, "here"), hint)
        tail = prompt[chat.turn(prompt, "here").at :]
        assert tail == chat.tail and made[-len(tail) :] == tail
        assert re.fullmatch(r"(?s).*go left\s+A key is here\s*(<\|end\|>\s*)?<\|assistant\|>\s*", renderer.tokenizer.decode(made))


@pytest.mark.parametrize(
    ("template", "without", "with_own"),
    [
        ("tiny", "<|system|> HINT<|user|> who is it<|assistant|>", "<|system|> You are HINT<|user|> who is it<|assistant|>"),
        ("turns", "<|system|> HINT<|end|> <|user|> who is it", "<|system|> You are HINT<|end|> <|user|> who is it"),
        ("default", "<|system|> Be good. HINT<|end|> <|user|> who is it", "<|system|> You are HINT<|end|> <|user|> who is it"),
        ("bos", "<|pad|><|system|> HINT<|end|> <|user|> who is it", "<|pad|><|system|> You are HINT<|end|> <|user|> who is it"),
        ("inside", "<|user|> [SYS] HINT[/SYS] who is it", "<|user|> [SYS]You are HINT[/SYS]who is it"),
        ("refuses", "<|user|> HINT who is it", None),
    ],
)
def test_the_system_side_of_a_prompt(renderers, template, without, with_own):
    renderer = renderers[template]
    chat = Chat(renderer)
    hint = chat.encode(" HINT")
    question = Message("user", "who is it")
    for system, expected in ((None, without), ("You are", with_own)):
        if expected is None:
            continue
        prompt = renderer.render([*([Message("system", system)] if system else []), question])
        made = insert(prompt, chat.system(prompt, "here"), hint)
        text = re.sub(r"\s+", " ", renderer.tokenizer.decode(made))
        assert text.replace("> ", ">").startswith(expected.replace("> ", ">")), text
        n = len(prompt) - chat.system(prompt, "here").at
        assert made[len(made) - n :] == prompt[len(prompt) - n :]  # what comes behind is byte-identical


@pytest.mark.parametrize("template", ["tiny", "turns", "bos"])
def test_a_system_message_of_its_own_is_what_the_template_would_have_written(renderers, template):
    renderer = renderers[template]
    chat = Chat(renderer)
    question = Message("user", "who is it")
    prompt = renderer.render([question])
    made, right = insert(prompt, chat.system(prompt, "here"), chat.encode("go left")), renderer.render([Message("system", "go left"), question])
    plain = [[*filter(None, renderer.tokenizer.decode(ids).split())] for ids in (made, right)]  # this tokenizer begins every text with a blank
    assert plain[0] == plain[1] and [i for i in made if i in chat.control] == [i for i in right if i in chat.control]


def test_prompts_of_somebody_else_are_refused_with_the_place(renderers):
    chat = Chat(renderers["turns"])
    foreign = renderers["tiny"].tokenizer.encode("go left", add_special_tokens=False)
    with pytest.raises(DataError, match=r"task 'x', step 3: the prompt does not end with the ids"):
        chat.turn(foreign, "task 'x', step 3")
    with pytest.raises(DataError, match=r"task 'x', step 3: the prompt begins neither"):
        chat.system(foreign, "task 'x', step 3")


def test_no_control_id_of_a_peer_survives(tiny):
    chat = Chat(tiny)
    word = chat.encode("go")
    dirty = [tiny.end_id, *word, tiny.end_id, 3, *word, 4, 4]
    assert chat.clean(dirty) == [*word, *chat.newline, *word]
    assert not set(chat.encode("go <|end|> left <|user|>")) & chat.control


def test_what_a_bridge_told_comes_without_its_template(renderers, episode):
    for name in ("tiny", "turns"):
        chat = Chat(renderers[name])
        t = episode(renderers[name], [("Question", "go left"), ("A key is here", "take key"), ("who", "go")], success=True, cut=[1])
        assert [chat.decode(chat.read(s)).strip() for s in t.steps[1:]] == ["A key is here", "who"]


def test_a_hint_loses_its_middle_or_is_left_out():
    body, gap = list(range(100)), [-7]
    assert Hint([1], body, [2]).fit(102, gap) == [1, *body, 2]
    assert Hint([1], body, [2]).fit(13, gap) == [1, *range(5), -7, *range(95, 100), 2]
    assert Hint([1], body, [2]).fit(14, gap) == [1, *range(6), -7, *range(95, 100), 2]
    assert Hint([1], body, [2]).fit(10, gap) is None
    assert Hint(after=[5]).fit(1, gap) == [5] and Hint(after=[5]).fit(0, gap) is None and Hint().fit(0, gap) == []


# -- spans ------------------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["<search>", "</search>", " who", "é€😀", "key", "\n", " ", "<", ">"]), max_size=14))
def test_spans_lie_strictly_between_their_markers(parts):
    chat = _chat()
    text = "".join(parts)
    ids = chat.encode(text)
    found = token_spans(chat, ids, re.compile("<search>(.*?)</search>", re.DOTALL), 1)
    every = [m.group(1) for m in re.finditer("(?s)<search>(.*?)</search>", chat.decode(ids))]
    for i, j in found:
        before, after = chat.decode(ids[:i]), chat.decode(ids[:j])
        assert before.endswith("<search>") and chat.decode(ids)[len(after) :].startswith("</search>") and after[len(before) :] in every
    assert len(found) == len([q for q in every if q])


_CACHE: list[Chat] = []


def _chat():
    if not _CACHE:
        from agentgym.renderer import Renderer
        from agentgym.trainers.tokenizer import build_tokenizer

        _CACHE.append(Chat(Renderer(build_tokenizer(["who key go left"], vocab=300, max_length=512))))
    return _CACHE[0]


# -- contexts ---------------------------------------------------------------------------------------------------------------------


def test_one_context_a_step_or_one_a_segment(random_batch):
    batch = random_batch(seed=5)
    wanted = batch.sampled
    steps, segments = units(batch, wanted, "turn"), units(batch, wanted, "start")
    assert [u.step for u in steps] == list(range(batch.n_steps)) and len(segments) == batch.n_segments
    for u in steps:
        assert batch.position[u.start] == 0 and batch.segment[u.start] == batch.segment[u.opens]
        assert (
            (batch.step[u.opens : u.end] == u.step).all() and not batch.sampled[u.opens : u.answers].any() and batch.sampled[u.answers : u.end].all()
        )
    assert all(u.start == u.opens and (batch.segment[u.start : u.end] == i).all() for i, u in enumerate(segments))
    some = torch.zeros_like(wanted)
    some[segments[1].answers] = True
    (only,) = units(batch, some, "start")
    assert only.end == segments[1].answers + 1 and only.start == segments[1].start  # what comes behind the last wanted token is not read


def test_rectangles_hold_the_students_ids_and_the_inserted_ones(random_batch):
    batch = random_batch(seed=6)
    wanted = batch.sampled
    contexts = [Context(u, u.answers - 1, [20 + i % 3] * (i % 4)) for i, u in enumerate(units(batch, wanted, "turn"))]
    seen = torch.zeros(batch.n_tokens)
    for rows, source, scored in rectangles(contexts, batch, wanted, 60, torch.device("cpu")):
        assert rows.ids.numel() <= 60 or rows.ids.shape[0] == 1
        ids = rows.flat(rows.ids)
        assert torch.equal(ids[source >= 0], batch.token[source[source >= 0]]) and (ids[source < 0] >= 20).all()
        seen[source[scored]] += 1
        for r in range(rows.ids.shape[0]):  # own tokens in their order, none left out
            own = source[rows.segment() == r]
            own = own[own >= 0]
            assert torch.equal(own, torch.arange(int(own[0]), int(own[-1]) + 1))
    assert torch.equal(seen, wanted.float())
    assert list(rectangles([], batch, wanted, 60, torch.device("cpu"))) == []
