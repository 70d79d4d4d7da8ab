"""search_peers: the group's searches on the system side, the student's ids untouched, and top-k unions that a plain softmax confirms."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentgym import registry
from agentgym.errors import ConfigError, DataError
from agentgym.store import read_lines
from agentgym.trainers.hindsight import Context
from agentgym.trainers.teacher.search_peers import search_peers
from agentgym.trainers.train import train
from agentgym.trainers.update import Updater

RIGHT = [("Question who is it", "go <search> who is it</search>"), ("A key is here", "<search>key</search>"), ("in the hall", "answer key")]
WRONG = [("Question who is it", "<search> what</search>"), ("You are", "answer hall <search> never closed")]
SILENT = [("Question who is it", "answer what")]
BLOCK = "Searches of several attempts at this task:\n1. CORRECT\n- who is it\n-key\n2. INCORRECT\n- what\n3. INCORRECT"


def squeeze(text):
    return "".join(text.split())


@pytest.fixture
def group(tiny, episode, play_round):
    return play_round(*(episode(tiny, t, success=t is RIGHT) for t in (RIGHT, WRONG, SILENT)), update=50)


def whole(context, batch):
    own = batch.token[context.unit.start : context.unit.end].tolist()
    n = context.cut - context.unit.start
    return own[:n] + list(context.inserted) + own[n:]


def softmax_by_hand(model, contexts, batch, wanted, temperature):
    """Return index in the batch → log-probabilities of the whole vocabulary, one context at a time."""
    out = {}
    for c in contexts:
        ids = whole(c, batch)
        with torch.no_grad():
            logq = (model(input_ids=torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
        n = c.cut - c.unit.start
        for i in range(c.unit.answers, c.unit.end):
            if wanted[i]:
                out[i] = logq[i - c.unit.start + len(c.inserted) - 1] if i >= c.cut else logq[i - c.unit.start - 1]
        assert n <= c.unit.answers - c.unit.start
    return out


@pytest.mark.parametrize(("budget", "temperature"), [(60, 1.0), (4096, 0.7)])
def test_the_union_of_both_top_k_and_the_teachers_probabilities(tiny, model_for, group, budget, temperature):
    batch, round = group
    round.budget, round.temperature = budget, temperature
    model, k = model_for(tiny), 5
    teacher = search_peers(model, tiny, top_k=k)
    found = teacher.fill(batch, round)
    ids, logq, mask = (found[n] for n in search_peers.provides)
    assert ids.shape == logq.shape == (batch.n_tokens, 2 * k) and ids.dtype == torch.int32
    wanted = mask > 0
    hinted = teacher._contexts(batch, round, wanted)
    plain = [Context(c.unit, c.unit.start, []) for c in hinted]
    theirs, own = (softmax_by_hand(model, c, batch, wanted, temperature) for c in (hinted, plain))
    assert len(theirs) == int(wanted.sum()) > 5
    for i, full in theirs.items():
        used = logq[i] > -torch.inf
        chosen = ids[i][used].tolist()
        assert len(set(chosen)) == len(chosen)  # nothing counts twice
        assert set(chosen) == set(full.topk(k).indices.tolist()) | set(own[i].topk(k).indices.tolist())
        torch.testing.assert_close(logq[i][used], full[ids[i][used].long()], atol=1e-5, rtol=1e-4)
    assert (logq[~wanted] == -torch.inf).all() and (ids[~wanted] == 0).all()


def test_only_what_stands_between_the_markers_is_scored(tiny, model_for, group):
    batch, round = group
    teacher = search_peers(model_for(tiny), tiny)
    mask = teacher.fill(batch, round)["teacher_mask"] > 0
    read = [teacher.chat.decode(batch.token[mask & (batch.step == s)].tolist()) for s in range(batch.n_steps)]
    assert [t.strip() for t in read] == ["who is it", "key", "", "what", "", ""]
    assert (batch.sampled | ~mask).all()


@pytest.mark.parametrize("template", ["tiny", "turns", "default", "bos", "inside", "refuses"])
def test_the_block_is_on_the_system_side_and_the_tail_is_the_students(renderers, model_for, episode, play_round, template):
    renderer = renderers[template]
    batch, round = play_round(*(episode(renderer, t, success=t is RIGHT) for t in (RIGHT, WRONG, SILENT)), update=50)
    teacher = search_peers(model_for(renderer), renderer)
    contexts = teacher._contexts(batch, round, teacher.fill(batch, round)["teacher_mask"] > 0)
    assert [c.unit.traj for c in contexts] == [0, 1]  # who never searched costs nothing
    for c in contexts:
        ids = whole(c, batch)
        tail = batch.token[c.cut : c.unit.end].tolist()
        assert ids[-len(tail) :] == tail and c.cut - c.unit.start <= len(teacher.chat.user_head)
        text = squeeze(renderer.tokenizer.decode(ids))
        assert squeeze(BLOCK) in text and text.index(squeeze(BLOCK)) < text.index("Question")


def test_warm_up_and_a_round_without_a_search_cost_nothing(tiny, model_for, group, episode, play_round):
    batch, round = group
    broken = torch.nn.Linear(1, 1)  # would fail in a forward pass
    broken.config = model_for(tiny).config
    round.update = 49
    quiet = [search_peers(broken, tiny).fill(batch, round)]
    silent = play_round(episode(tiny, SILENT, success=True), episode(tiny, SILENT, success=False), update=50)
    quiet.append(search_peers(broken, tiny).fill(*silent))
    quiet.append(search_peers(broken, tiny, max_hindsight=3).fill(batch, type(round)(round.trajectories, 50)))  # no room for anything
    for found in quiet:
        assert (found["teacher_mask"] == 0).all() and found["teacher_ids"].shape[1] == 1 and (found["teacher_logq"] == -torch.inf).all()


def test_labels_follow_the_outcome_and_groups_stay_apart(tiny, model_for, episode, play_round):
    half = episode(tiny, WRONG, success=False)
    half.outcome = 0.4
    other = episode(tiny, RIGHT, success=True, group="h")
    batch, round = play_round(half, other, update=50)
    for threshold, label in ((0.0, "CORRECT"), (0.5, "INCORRECT")):
        teacher = search_peers(model_for(tiny), tiny, threshold=threshold, text="")
        told = [teacher.chat.decode(c.inserted) for c in teacher._contexts(batch, round, teacher.fill(batch, round)["teacher_mask"] > 0)]
        assert [squeeze(t) for t in told] == [f"1.{label}-what", "1.CORRECT-whoisit-key"]


@pytest.mark.parametrize(
    ("query", "wrote", "read"),
    [
        (
            '"query":\\s*"((?:[^"\\\\]|\\\\.)*)"',
            '<tool_call> {"name": "search", "arguments": {"query": "who \\"key\\" is"}} </tool_call>',
            'who \\"key\\" is',
        ),
        ("\\Asearch( .+)", "search who is it", "who is it"),
    ],
)
def test_queries_of_other_formats(tiny, model_for, episode, play_round, query, wrote, read):
    batch, round = play_round(episode(tiny, [("Question", wrote)], success=True), episode(tiny, SILENT, success=False), update=50)
    teacher = search_peers(model_for(tiny), tiny, query=query)
    mask = teacher.fill(batch, round)["teacher_mask"] > 0
    assert teacher.chat.decode(batch.token[mask].tolist()).strip() == read.strip()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"query": "(a)(b)"}, "has 2 groups"), ({"query": "("}, "no regular expression"), ({"top_k": 0}, "at least 1"), ({"warmup": -1}, "and 0")],
)
def test_wrong_options_are_refused(tiny, model_for, options, says):
    with pytest.raises(ConfigError, match=says):
        registry.bind("teacher", "search_peers", options)(model_for(tiny), tiny)


def test_foreign_prompts_are_named_and_there_is_no_state(tiny, model_for, group):
    batch, round = group
    teacher = search_peers(model_for(tiny), tiny)
    teacher.load_state_dict(teacher.state_dict())
    batch.token[batch.step == 0] = 9
    with pytest.raises(DataError, match="teacher search_peers, task 'g', step 0"):
        teacher.fill(batch, round)


@pytest.mark.slow
def test_a_real_tokenizer_with_a_chat_template(smollm2, model_for, episode, play_round):
    batch, round = play_round(*(episode(smollm2, t, success=t is RIGHT) for t in (RIGHT, WRONG, SILENT)), update=50)
    teacher = search_peers(model_for(smollm2), smollm2, top_k=50)
    found = teacher.fill(batch, round)
    mask = found["teacher_mask"] > 0
    assert [smollm2.tokenizer.decode(batch.token[mask & (batch.step == s)]) for s in (0, 1, 3)] == [" who is it", "key", " what"]
    first = teacher._contexts(batch, round, mask)[0]
    system, user = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face", "<|im_start|>user\nQuestion who is it"
    expected = f"{system}\n{BLOCK}<|im_end|>\n{user}<|im_end|>\n<|im_start|>assistant\ngo <search> who is it</search><|im_end|>\n"
    assert smollm2.tokenizer.decode(whole(first, batch)).startswith(expected)
    tail = batch.token[first.cut : first.unit.end].tolist()
    assert whole(first, batch)[-len(tail) :] == tail and smollm2.tokenizer.decode(tail).startswith("<|im_end|>\n" + user)
    theirs = softmax_by_hand(teacher.model, [first], batch, mask, 1.0)
    for i, full in theirs.items():
        torch.testing.assert_close(found["teacher_logq"][i, :50], full.topk(50).values, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("budget", [40, 4096])
def test_the_update_follows_the_divergence_over_the_whole_vocabulary(tiny, model_for, group, budget):
    """Teacher, live columns, objective and reduce together, with K = V: the gradient is autograd's of the full formula."""
    batch, round = group
    model, vocabulary = model_for(tiny), len(tiny.tokenizer)
    teacher = search_peers(model, tiny, top_k=vocabulary)
    batch.streams |= teacher.fill(batch, round)
    batch.set_advantage(torch.zeros(batch.n_steps))
    mask = batch.streams["teacher_mask"] > 0
    hinted = teacher._contexts(batch, round, mask)
    theirs = softmax_by_hand(model, hinted, batch, mask, 1.0)
    total, searched = torch.zeros(()), 0
    for c in hinted:
        logits = model(input_ids=batch.token[None, c.unit.start : c.unit.end]).logits[0].double()
        queries = [i for i in range(c.unit.start, c.unit.end) if mask[i]]
        p = torch.stack([theirs[i].double() for i in queries])
        q = torch.stack([logits[i - c.unit.start - 1] for i in queries]).log_softmax(-1)
        m = torch.logaddexp(p, q) - torch.tensor(2.0).log()
        total = total + 0.5 * (p.exp() * (p - m) + q.exp() * (q - m)).sum(-1).mean()
        searched += 1
    parameters = list(model.parameters())
    right = torch.autograd.grad(total / searched, parameters)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    before = [p.detach().clone() for p in parameters]
    objectives = [("sd_search", registry.bind("objective", "sd_search"), 1.0)]
    updater = Updater(model, optimizer, objectives, registry.bind("reduce", "token_mean"), clip_norm=None, tokens_per_microbatch=budget)
    metrics = updater.step(batch)
    assert metrics["loss/sd_search"] == pytest.approx(total.item() / searched, abs=1e-5)
    for old, new, g in zip(before, parameters, right, strict=True):
        torch.testing.assert_close(old - new.detach(), g, atol=2e-6, rtol=1e-3)


def test_a_run_with_it(plain_toy):
    """The whole loop, with every action of the toy taken for a query; its cost has a line of its own."""
    method = {"teachers": {"search_peers": {"warmup": 1, "query": "(.+)", "top_k": 8}}, "objectives": {"sd_search": {"coefficient": 0.1}}}
    config = plain_toy({**method, "update": {"count": 3}})
    train(config)
    rows = [r for r in read_lines(Path(config.run.dir) / "metrics.jsonl") if "loss" in r]
    assert [r["loss/sd_search"] > 1e-8 for r in rows] == [False, True, True] and all(r["skipped"] == 0 for r in rows)
    assert all("seconds/stream/search_peers" in r for r in rows) and 0 < rows[1]["jsd"] < 0.7
