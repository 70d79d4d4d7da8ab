"""peer: the student's own ids behind a successful peer, scored as a plain forward pass over the whole context would score them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from agentgym import registry
from agentgym.errors import ConfigError, DataError
from agentgym.store import read_lines
from agentgym.trainers.forward import logprobs
from agentgym.trainers.hindsight import units
from agentgym.trainers.teacher.peer import peer
from agentgym.trainers.train import train

TURNS = [("You are in the hall", "go left"), ("A key is here", "take key"), ("You are in the kitchen", "open door")]
LOSES = [("You are in the hall", "go right"), ("You are in the kitchen", "open door"), ("A key is here", "go go")]


def contexts_of(teacher, batch, round):
    hints = teacher._hints(batch, round)
    helped = torch.tensor([h is not None for h in hints])
    wanted = teacher._spans(batch, round) & helped[batch.step_traj[batch.step]]
    return teacher._contexts(batch, round, wanted, hints), wanted


def by_hand(model, teacher, batch, round):
    """Score every context alone, without padding or batching."""
    logp, mask = torch.zeros(2, batch.n_tokens)
    contexts, wanted = contexts_of(teacher, batch, round)
    for c in contexts:
        own = list(range(c.unit.start, c.unit.end))
        n = c.cut - c.unit.start
        ids = batch.token[own].tolist()
        ids = ids[:n] + list(c.inserted) + ids[n:]
        where = own[:n] + [-1] * len(c.inserted) + own[n:]
        with torch.no_grad():
            found, _ = logprobs(model, torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))
        for x, i in zip(found[0].tolist(), where, strict=True):
            if i >= c.unit.answers and wanted[i]:
                logp[i], mask[i] = x, 1
    return logp, mask


@pytest.fixture
def group(tiny, episode, play_round):
    """Two that fail around two that succeed."""
    win2 = [*TURNS[:1], ("You are in the kitchen", "open door")]
    trajectories = [episode(tiny, LOSES, success=False), episode(tiny, TURNS, success=True), episode(tiny, win2, success=True)]
    trajectories.append(episode(tiny, LOSES[:1], success=False))
    return play_round(*trajectories)


@pytest.mark.parametrize("place", ["start", "turn"])
@pytest.mark.parametrize("budget", [40, 4096])
def test_scores_are_those_of_one_context_at_a_time(tiny, model_for, group, place, budget):
    batch, round = group
    round.budget = budget
    model = model_for(tiny)
    teacher = registry.bind("teacher", "peer", {"place": place})(model, tiny)
    found = teacher.fill(batch, round)
    logp, mask = by_hand(model, teacher, batch, round)
    torch.testing.assert_close(found["teacher_logp"], logp, atol=1e-5, rtol=1e-5)
    assert torch.equal(found["teacher_mask"], mask)
    ended = torch.isin(batch.token, torch.tensor(sorted(tiny.stop_ids)))
    assert torch.equal(mask > 0, batch.sampled & ~ended)  # all that was written, but not the end token
    assert set(found) == set(peer.provides)


def test_a_teacher_context_reads_as_it_should_and_ends_as_the_template_ends(tiny, model_for, group):
    batch, round = group
    teacher = peer(model_for(tiny), tiny)
    (fails, wins, wins_too, short), _ = contexts_of(teacher, batch, round)
    told = {c.unit.traj: " ".join(teacher.chat.decode(c.inserted).split()) for c in (fails, wins, wins_too, short)}
    first = "A successful attempt at this task: > go left A key is here > take key You are in the kitchen > open door"
    second = "A successful attempt at this task: > go left You are in the kitchen > open door"
    assert told == {0: first, 1: second, 2: first, 3: first}  # a success is shown another one
    for c in (fails, wins):
        assert batch.token[c.cut : c.unit.answers].tolist() == teacher.chat.tail and not set(c.inserted) & teacher.chat.control


def test_a_turn_context_puts_it_in_front_of_its_own_step(tiny, model_for, group):
    batch, round = group
    teacher = peer(model_for(tiny), tiny, place="turn")
    contexts, _ = contexts_of(teacher, batch, round)
    assert [c.unit.step for c in contexts] == list(range(batch.n_steps))
    assert all(c.unit.answers - c.cut == len(teacher.chat.tail) and c.unit.start <= c.cut for c in contexts)


def test_where_every_step_is_a_segment_both_places_are_one(tiny, model_for, episode, play_round):
    batch, round = play_round(episode(tiny, LOSES, success=False, window=True), episode(tiny, TURNS, success=True, window=True))
    model = model_for(tiny)
    start, turn = (peer(model, tiny, place=p) for p in ("start", "turn"))
    assert batch.n_segments == batch.n_steps == 6
    assert torch.equal(start.fill(batch, round)["teacher_logp"], turn.fill(batch, round)["teacher_logp"])
    told = start.chat.decode(contexts_of(start, batch, round)[0][0].inserted)
    assert told.split("task:")[1].split() == "> go left > take key > open door".split()  # prompts that begin a segment repeat what is known


def test_who_has_no_peer_is_left_alone_and_costs_nothing(tiny, model_for, episode, play_round):
    lonely = [episode(tiny, LOSES, success=False, group="a"), episode(tiny, TURNS, success=True, group="a")]
    failed = [episode(tiny, LOSES, success=False, group="b"), episode(tiny, LOSES, success=False, group="b")]
    solved = [episode(tiny, TURNS, success=True, group="c"), episode(tiny, TURNS, success=True, group="c")]
    batch, round = play_round(*lonely, *failed, *solved)
    traj = batch.step_traj[batch.step]
    found = peer(model_for(tiny), tiny).fill(batch, round)
    assert traj[found["teacher_mask"] > 0].unique().tolist() == [0]  # the only success has no other one; b has none; c's outcomes are equal
    assert (found["teacher_logp"][found["teacher_mask"] == 0] == 0).all()
    every = peer(model_for(tiny), tiny, mixed=False).fill(batch, round)
    assert traj[every["teacher_mask"] > 0].unique().tolist() == [0, 4, 5]
    none = play_round(*failed)
    broken = torch.nn.Linear(1, 1)  # would fail in a forward pass
    broken.config = model_for(tiny).config
    assert all((x == 0).all() for x in peer(broken, tiny, weights="live").fill(*none).values())
    assert all((x == 0).all() for x in peer(broken, tiny, weights="live", until=3).fill(batch, type(round)(round.trajectories, 3)).values())


def test_action_spans(tiny, model_for, episode, play_round):
    def action(text):
        return text.partition("<action>")[2].partition("</action>")[0].strip()

    wrote = [("You are", "I go left who <action> go left</action>"), ("who", "no action")]
    batch, round = play_round(episode(tiny, wrote, success=False, action=action), episode(tiny, TURNS, success=True))
    teacher = peer(model_for(tiny), tiny, spans="action")
    mask = teacher.fill(batch, round)["teacher_mask"] > 0
    assert teacher.chat.decode(batch.token[mask & (batch.step == 0)].tolist()) == "go left"
    first = batch.sampled.nonzero()[:, 0][0]
    assert not mask[first : first + 4].any() and not mask[batch.step == 1].any()  # the last occurrence; a step without one has no span


def test_flag_and_no_hint(tiny, model_for, group):
    batch, round = group
    teacher = peer(model_for(tiny), tiny, hint="none", flag=True, weights="live")
    contexts, _ = contexts_of(teacher, batch, round)
    assert [teacher.chat.decode(c.inserted).split()[-1] for c in contexts] == ["fails.", "succeeds.", "succeeds.", "fails."]
    bare = peer(model_for(tiny), tiny, hint="none")
    assert all(c.inserted == [] for c in contexts_of(bare, batch, round)[0])
    model = model_for(tiny)
    plain, _ = by_hand(model, bare, batch, round)
    torch.testing.assert_close(bare.fill(batch, round)["teacher_logp"], plain, atol=1e-5, rtol=1e-5)


def test_a_long_peer_loses_its_middle_and_a_full_context_is_skipped(tiny, model_for, group):
    batch, round = group
    short = peer(model_for(tiny), tiny, max_hindsight=60, text="")
    whole = peer(model_for(tiny), tiny, text="")
    for cut, full in zip(contexts_of(short, batch, round)[0], contexts_of(whole, batch, round)[0], strict=True):
        if len(full.inserted) > 60:
            assert len(cut.inserted) == 60 and cut.inserted[:5] == full.inserted[:5] and cut.inserted[-5:] == full.inserted[-5:]
    longest = int(batch.position.max()) + 1
    tight = peer(model_for(tiny, positions=longest + 4), tiny, text="")
    lengths = torch.bincount(batch.segment)
    found = tight.fill(batch, round)["teacher_mask"]
    assert set(batch.segment[found > 0].tolist()) == {i for i, n in enumerate(lengths.tolist()) if n < longest - 8}


def test_stale_weights_follow_in_steps_and_survive_a_restart(tiny, model_for, group):
    batch, round = group
    model = model_for(tiny)
    teacher, live = peer(model, tiny, refresh=3), peer(model, tiny, weights="live")

    def at(teacher, update):
        return teacher.fill(batch, type(round)(round.trajectories, update))["teacher_logp"]

    old = at(teacher, 0)
    assert torch.equal(old, at(live, 0))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    assert torch.equal(at(teacher, 2), old) and not torch.allclose(at(live, 2), old)
    again = peer(copy.deepcopy(model), tiny, refresh=3)
    again.load_state_dict(copy.deepcopy(teacher.state_dict()))
    assert torch.equal(at(again, 2), old)
    assert torch.equal(at(teacher, 3), at(live, 3)) and torch.equal(at(again, 3), at(live, 3))
    assert torch.equal(at(teacher, 0), at(live, 0))  # a new stage
    assert live.state_dict() == {}
    fresh = peer(model, tiny)
    fresh.load_state_dict(peer(model, tiny).state_dict())  # saved before its first round


def test_a_stale_copy_shares_the_weights_that_nobody_trains(tiny, model_for, group):
    peft = pytest.importorskip("peft")
    batch, round = group
    config = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = peft.get_peft_model(model_for(tiny), config)
    teacher = peer(model, tiny)
    old = teacher.fill(batch, round)["teacher_logp"]
    mine, policys = dict(teacher.teacher.copy.named_parameters()), dict(model.named_parameters())
    assert all((mine[n].data_ptr() == p.data_ptr()) != p.requires_grad for n, p in policys.items())
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.mul_(2)
    assert torch.equal(teacher.fill(batch, round)["teacher_logp"], old)
    assert set(teacher.state_dict()["weights"]) == {n for n, p in policys.items() if p.requires_grad}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hint": "none", "weights": "live"}, "compares the policy with itself"),
        ({"weights": "live", "refresh": 5}, "refresh=5 does nothing"),
        ({"hint": "none", "text": "x"}, "text='x' does nothing"),
        ({"hint": "none", "place": "turn"}, "place=turn does nothing"),
        ({"refresh": 0}, "all are at least 1"),
        ({"until": 0}, "all are at least 1"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tiny, model_for, options, says):
    with pytest.raises(ConfigError, match=says):
        registry.bind("teacher", "peer", options)(model_for(tiny), tiny)


def test_foreign_prompts_are_named(tiny, model_for, group):
    batch, round = group
    batch.token[batch.step == 0] = 9
    with pytest.raises(DataError, match="teacher peer, task 'g', step 0"):
        peer(model_for(tiny), tiny).fill(batch, round)


def test_a_run_with_it(plain_toy):
    """The whole loop, two rounds with the teacher and one after its end; without a warm start nobody succeeds, so the hint is the flag."""
    teacher = {"peer": {"until": 2, "hint": "none", "flag": True, "mixed": False}}
    config = plain_toy({"teachers": teacher, "credit": {"name": "stepopsd", "decay": 2}, "update": {"count": 3}})
    train(config)
    rows = [r for r in read_lines(Path(config.run.dir) / "metrics.jsonl") if "loss" in r]
    assert [r["credit/mix"] for r in rows] == pytest.approx([0.2, 0.1, 0]) and [r["credit/taught"] > 0.5 for r in rows] == [True, True, False]
    assert all("seconds/stream/peer" in r and r["skipped"] == 0 for r in rows) and rows[0]["credit/gap"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("place", ["start", "turn"])
def test_a_real_tokenizer_with_a_chat_template(smollm2, model_for, episode, play_round, place):
    """The student's ids are the very same ones, and the teacher reads a chat with the peer inside the user's turn."""
    batch, round = play_round(episode(smollm2, LOSES, success=False), episode(smollm2, TURNS, success=True))
    teacher = peer(model_for(smollm2), smollm2, place=place)
    contexts, wanted = contexts_of(teacher, batch, round)
    assert wanted[(batch.step_traj[batch.step] == 0) & batch.sampled].float().mean() > 0.5
    last = contexts[-1]
    n = last.cut - last.unit.start
    own = batch.token[last.unit.start : last.unit.end].tolist()
    context = own[:n] + list(last.inserted) + own[n:]
    assert context[:n] == own[:n] and context[n + len(last.inserted) :] == own[n:]
    start = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    hint = (
        "\nA successful attempt at this task:\n> go left\nA key is here\n> take key\nYou are in the kitchen\n> open door"
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    turns = [f"<|im_start|>user\n{seen}<|im_end|>\n<|im_start|>assistant\n{wrote}<|im_end|>\n" for seen, wrote in LOSES]
    closing = "<|im_end|>\n<|im_start|>assistant\n"
    at = 0 if place == "start" else 2
    turns[at] = turns[at].replace(closing, hint, 1)
    assert smollm2.tokenizer.decode(context) == start + "".join(turns).removesuffix("<|im_end|>\n")
    found = teacher.fill(batch, round)
    logp, mask = by_hand(teacher.teacher.copy, teacher, batch, round)
    torch.testing.assert_close(found["teacher_logp"], logp, atol=1e-4, rtol=1e-4)
    assert torch.equal(found["teacher_mask"], mask) and len(units(batch, wanted, place)) == (1 if place == "start" else 3)
