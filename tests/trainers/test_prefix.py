"""Shared beginnings: found by ids alone, computed once, and the same numbers and gradients as without."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.config import Config, Plugin, Update
from agentgym.errors import ConfigError
from agentgym.registry import bind
from agentgym.trainers import forward, prefix
from agentgym.trainers.batch import pack
from agentgym.trainers.forward import Rows, live, micro_batches
from agentgym.trainers.prefix import Stem, Tree, common, cuts, shares, trees, why_not, worth
from agentgym.trainers.streams import Reference, Round, fill, score
from agentgym.trainers.update import Updater
from agentgym.types import Completion, Status, Step, Task, Trajectory


@pytest.fixture
def eager(monkeypatch):
    """Share whatever can be shared: the beginnings of tests are too short to pay."""
    monkeypatch.setattr(prefix, "_LEAST", 1)
    monkeypatch.setattr(prefix, "_SHARE", 0.0)


def flat(sequences):
    """Return sequences as the columns that micro_batches reads."""
    length = torch.tensor([len(s) for s in sequences])
    return SimpleNamespace(token=torch.tensor([t for s in sequences for t in s]), segment=torch.arange(len(sequences)).repeat_interleave(length))


def arrays(sequences):
    length = np.array([len(s) for s in sequences])
    return np.array([t for s in sequences for t in s]), length.cumsum() - length, length


# -- the tree ---------------------------------------------------------------------------------------------------------------------


def test_a_tree_written_out(eager):
    """Three sequences share 7 8; two of them 7 8 5 as well; one begins otherwise."""
    (tree,), alone = trees(*arrays([[7, 8, 5, 1], [9, 9], [7, 8, 6], [7, 8, 5, 2, 3]]), budget=100)
    assert alone.tolist() == [1]
    assert tree.ids.tolist() == [7, 8, 5, 1, 2, 3, 6] and tree.position.tolist() == [0, 1, 2, 3, 3, 4, 2]
    assert tree.end.tolist() == [7, 7, 6, 4, 6, 6, 7]
    assert tree.stems == (Stem(0, 2, 7), Stem(2, 3, 6)) and tree.branches.tolist() == [[0, 2], [2, 1], [3, 1], [4, 2], [6, 1]]
    assert tree.at.tolist() == [0, 1, 2, 3, 0, 1, 2, 4, 5, 0, 1, 6]
    assert tree.index.tolist() == [0, 1, 2, 3, 9, 10, 11, 12, 13, 6, 7, 8] and tree.length.tolist() == [4, 5, 3]
    assert tree.first.nonzero()[:, 0].tolist() == [0, 4, 9] and tree.segment().tolist() == [0] * 4 + [1] * 5 + [2] * 3
    assert (tree.cells, tree.padding) == (7, 0)


def test_equal_sequences_and_one_that_ends_inside_another(eager):
    (tree,), alone = trees(*arrays([[1, 2], [1, 2, 3], [1, 2, 3]]), budget=100)
    assert tree.cells == 3 and not len(alone)
    assert tree.branches.tolist() == [[0, 2], [2, 1]] and tree.stems == (Stem(0, 2, 3),)  # nothing is below the second: no stem
    assert tree.at.tolist() == [0, 1, 0, 1, 2, 0, 1, 2]


def test_the_order_is_that_of_ids_not_of_their_bytes():
    order, same = common(*arrays([[70_000, 1], [300], [2, 256], [2, 255, 9]]))
    assert order.tolist() == [3, 2, 1, 0] and same.tolist() == [1, 0, 0]


def test_sharing_must_pay():
    """A saving of 64 tokens is the least, and 15 % of what lies behind the beginning."""
    two = np.array([200, 200])
    assert worth(np.array([63]), two).tolist() == [0]  # saves 63
    assert worth(np.array([64]), two).tolist() == [64]  # saves 64, behind it are 272: 24 %
    assert worth(np.array([64]), np.array([600, 600])).tolist() == [0]  # saves 64, behind it are 1,072: 6 %
    assert worth(np.array([100, 20, 100]), np.array([150] * 4)).tolist() == [100, 0, 100]  # 20 · 3 is too little, the pairs pay
    assert worth(np.array([100, 30, 100]), np.array([150] * 4)).tolist() == [100, 30, 100]  # 30 · 3, then 70 more in each pair


def test_a_micro_batch_holds_the_budget_and_cuts_where_little_is_shared():
    length, shared = [10, 10, 10, 10, 10], [8, 0, 8, 8]
    assert cuts(length, shared, 100) == [(0, 5)]
    assert cuts(length, shared, 24) == [(0, 2), (2, 5)]  # 10 + 2 + 10 = 22 would fit: then the second group were cut apart
    assert cuts(length, shared, 1) == [(i, i + 1) for i in range(5)]
    assert cuts([], [], 10) == []


def test_who_shares_nothing_is_padded_as_before(eager):
    batch = flat([[1, 2, 3], [4, 5], [1, 2, 6], [7]])
    found = list(micro_batches(batch, 100, share=True))
    assert [type(r) for r in found] == [Tree, Rows] and found[1].ids.tolist() == [[4, 5], [7, 0]]
    assert all(isinstance(r, Rows) for r in micro_batches(batch, 100, share=False))
    for rows in found:
        assert torch.equal(rows.token, batch.token[rows.index])
        assert torch.equal(rows.segment().diff() != 0, batch.segment[rows.index].diff() != 0)


words = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(sequences=st.lists(words, min_size=1, max_size=9), budget=st.integers(1, 60), least=st.integers(1, 6), share=st.floats(0, 1))
def test_any_sequences_make_trees_that_hold_each_once(sequences, budget, least, share):
    with pytest.MonkeyPatch.context() as m:
        m.setattr(prefix, "_LEAST", least)
        m.setattr(prefix, "_SHARE", share)
        batch = flat(sequences)
        found = list(micro_batches(batch, budget, share=True))
    assert sorted(torch.cat([r.index for r in found]).tolist()) == list(range(len(batch.token)))
    for t in found:
        assert torch.equal(t.token, batch.token[t.index]) and (t.cells <= budget or len(set(t.segment().tolist())) == 1)
        if isinstance(t, Tree):
            k = torch.arange(t.cells)
            sees = (k <= k[:, None]) & (k[:, None] < t.end)  # [query, key]
            for own in t.at.split(t.length.tolist()):  # a token sees exactly the tokens of its sequence up to itself
                for i, cell in enumerate(own.tolist()):
                    assert sees[cell].nonzero()[:, 0].tolist() == own[: i + 1].tolist()
            assert t.cells == sum(n for _, n in t.branches.tolist()) and t.position[t.at].tolist() == [i for n in t.length.tolist() for i in range(n)]


# -- the same gradients -----------------------------------------------------------------------------------------------------------


def family(rng, prompts=(9, 30, 14), sizes=(4, 1, 6), nested=True):
    """Return sequences: groups of different sizes behind prompts, some members going on alike for a while."""
    out = []
    for n, size in zip(prompts, sizes, strict=True):
        prompt = rng.integers(0, 23, n).tolist()
        for i in range(size):
            more = rng.integers(0, 23, int(rng.integers(0, 12))).tolist()
            out.append(prompt + more)
            if nested and i % 2:
                out += [out[-1] + rng.integers(0, 23, 3).tolist(), out[-1] + [22]]
    return out


def gradient(model, batch, *, share, budget=64):
    """Return (computed cells, logp [N], entropy [N], gradient of a weighted sum of both) through `live`."""
    g = torch.Generator().manual_seed(3)
    wanted, c = torch.rand(len(batch.token), generator=g) < 0.7, torch.randn(len(batch.token), generator=g)
    logp, entropy, cells = torch.zeros(len(batch.token)), torch.zeros(len(batch.token)), 0
    model.zero_grad()
    for rows in micro_batches(batch, budget, share=share):
        found = live(model, rows, wanted[rows.index], temperature=0.7, entropy=True)
        logp[rows.index], entropy[rows.index] = found["logp"].detach(), found["entropy"].detach()
        (c[rows.index] * (found["logp"] + 0.1 * found["entropy"])).sum().backward()
        cells += rows.cells
    return cells, logp, entropy, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def same(model, batch, **options):
    """Check that sharing changes nothing but the number of cells, and return how many there were without and with."""
    plain, shared = gradient(model, batch, share=False, **options), gradient(model, batch, share=True, **options)
    torch.testing.assert_close(shared[1], plain[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shared[2], plain[2], atol=1e-5, rtol=1e-5)
    scale = plain[3].abs().max()
    assert scale > 0
    torch.testing.assert_close(shared[3] / scale, plain[3] / scale, atol=1e-5, rtol=0)
    return plain[0], shared[0]


@pytest.mark.parametrize("budget", [1, 40, 120, 10_000])
def test_groups_of_different_lengths(budget, eager, make_model):
    batch = flat(family(np.random.default_rng(0)))
    plain, shared = same(make_model(), batch, budget=budget)
    assert shared <= plain and (budget < 100 or shared < 0.6 * plain)


@settings(max_examples=25, deadline=None)
@given(sequences=st.lists(words, min_size=2, max_size=8), budget=st.integers(5, 80))
def test_any_tree_gives_the_gradient_of_its_sequences(sequences, budget, make_model):
    with pytest.MonkeyPatch.context() as m:
        m.setattr(prefix, "_LEAST", 1)
        m.setattr(prefix, "_SHARE", 0.0)
        batch = flat([[5], *[[1, *s] for s in sequences]])  # one id at least is shared, one sequence has no target
        model = make_model()
        found = [gradient(model, batch, share=s, budget=budget) for s in (False, True)]
        torch.testing.assert_close(found[1][1], found[0][1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[1][3], found[0][3], atol=1e-5 * float(found[0][3].abs().max()) + 1e-7, rtol=0)


def other(kind):
    import transformers

    small = {"vocab_size": 23, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "max_position_embeddings": 128, "initializer_range": 0.3}  # fmt: skip
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=23, n_positions=128, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3)
        return transformers.GPT2LMHeadModel(config).eval()
    return {
        "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(tie_word_embeddings=False, **small)),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(tie_word_embeddings=True, **small)),
        "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(head_dim=8, tie_word_embeddings=False, **small)),
    }[kind]().eval()


@pytest.mark.parametrize("kind", ["qwen2", "llama", "qwen3", "gpt2"])
def test_model_families(kind, eager):
    """Biases, tied and untied heads, normalised queries and keys, learnt positions."""
    torch.manual_seed(0)
    same(other(kind), flat(family(np.random.default_rng(1))), budget=10_000)


def test_the_quick_starts_model(eager):
    from agentgym.trainers.model import load_model

    model, _ = load_model("tiny", vocab=300)
    assert why_not(model) is None
    same(model, flat(family(np.random.default_rng(2))), budget=10_000)


@pytest.mark.parametrize("lora", [None, {"r": 4, "alpha": 8.0}])
def test_gradient_checkpointing_and_adapters(lora, eager):
    """Layers that are computed again in the backward pass attend to the tree then too; afterwards the model is as it was."""
    from agentgym.trainers.model import load_model

    batch = flat(family(np.random.default_rng(3)))
    model, _ = load_model("tiny", vocab=300, gradient_checkpointing=True, lora=lora)
    for n, p in model.named_parameters():
        if "lora_B" in n:  # zero at first: then lora_A had no gradient
            torch.nn.init.normal_(p, std=0.1, generator=torch.Generator().manual_seed(0))
    before, calls = model.config._attn_implementation, []
    model.train()  # transformers recomputes in training mode only; there is no dropout
    handle = next(m for n, m in model.named_modules() if n.endswith("layers.0.self_attn")).register_forward_hook(lambda *_: calls.append(1))
    same(model, batch, budget=10_000)
    handle.remove()
    assert len(calls) == 2 + 4, "the tree and the two rectangles, or as many again: once forward and once more in the backward pass"
    assert model.config._attn_implementation == before


def test_long_vocabularies_in_chunks(eager, make_model, monkeypatch):
    monkeypatch.setattr(forward, "_MAX_LOGITS", 23 * 9)
    monkeypatch.setattr(forward, "_CHUNK", 23 * 4)
    same(make_model(), flat(family(np.random.default_rng(4))), budget=10_000)


def test_logq_and_live_values_of_tokens_that_rows_share(eager, make_model):
    """Ids asked for in a shared place may differ from row to row."""
    batch, model = flat(family(np.random.default_rng(5))), make_model()
    g = torch.Generator().manual_seed(0)
    among = torch.randint(23, (len(batch.token), 3), generator=g)
    out = []
    for share in (False, True):
        logq = torch.zeros(len(batch.token), 3)
        for rows in micro_batches(batch, 10_000, share=share):
            logq[rows.index] = live(model, rows, torch.ones(len(rows.index), dtype=torch.bool), among=among[rows.index])["logq"].detach()
        out.append(logq)
    torch.testing.assert_close(*out, atol=1e-5, rtol=1e-5)


# -- in the trainer ---------------------------------------------------------------------------------------------------------------


def episodes(rng, *, window):
    """Return two groups of four and one of one, each with its prompt; `window`: every step is a context of prompt, last words and question."""
    out = []
    for g, size in enumerate((4, 4, 1)):
        prompt = rng.integers(0, 23, 12).tolist()
        for _ in range(size):
            steps, said = [], []
            for i in range(int(rng.integers(2, 5))):
                done = Completion("x", rng.integers(0, 23, 3).tolist(), (-rng.random(3) - 2).tolist(), version=0)
                seen = rng.integers(0, 23, 4).tolist()
                steps.append(Step([*prompt, *said[-7:], *seen] if window or not i else seen, window, done, "x", True, "", float(i), str(i)))
                said += [*seen, *done.tokens]
            out.append(Trajectory(Task(str(g), "toy", "train"), f"g{g}", steps, outcome=float(rng.integers(3)), status=Status.TERMINATED))
    return out


class Keep(torch.optim.SGD):
    def step(self, closure=None):
        self.seen = torch.cat([p.grad.flatten() for g in self.param_groups for p in g["params"]])
        super().step(closure)


@pytest.mark.parametrize("window", [False, True])
def test_one_update_is_the_same_and_cheaper(window, eager, make_model):
    model, found = make_model(), []
    batch = pack(episodes(np.random.default_rng(6), window=window), discount=1.0)
    batch.set_advantage(bind("credit", "grpo")(batch.outcome, batch.traj_group, batch.step_traj))
    objectives = [("clip", bind("objective", "clip"), 1.0), ("cross_entropy", bind("objective", "cross_entropy", {"observation_weight": 0.3}), 0.5)]
    for share, budget in ((False, 10_000), (True, 10_000), (True, 50), (True, 1)):
        optimizer = Keep(model.parameters(), lr=0.0)
        u = Updater(model, optimizer, objectives, bind("reduce", "sequence_mean"), clip_norm=None, share=share, tokens_per_microbatch=budget)
        found.append((optimizer, u.step(batch)))
    plain = found[0][1]
    assert plain["shared"] == 0 and found[3][1]["shared"] == 0  # the last: one segment in each micro-batch
    prompts = 12 * 3 * 2 / batch.n_tokens  # of two groups of four, each once
    assert found[1][1]["shared"] == pytest.approx(prompts) if not window else found[1][1]["shared"] > 0.5
    for optimizer, metrics in found[1:]:
        torch.testing.assert_close(optimizer.seen, found[0][0].seen, atol=1e-5, rtol=1e-5)
        for name in ("loss", "nll", "clip_fraction"):
            assert metrics[name] == pytest.approx(plain[name], abs=1e-5)
        assert 0 <= metrics["padding"] < 1 and metrics["tokens"] == batch.n_tokens


def test_streams_are_the_same(eager, make_model):
    model, batch = make_model(), pack(episodes(np.random.default_rng(7), window=True), discount=1.0)
    plain, entropy = score(model, batch, temperature=0.8, budget=10_000, entropy=True)
    fill(batch, {"ref_logp", "entropy"}, model, Reference(model), Round(temperature=0.8, budget=10_000, share=True))
    torch.testing.assert_close(batch.streams["ref_logp"], plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(batch.streams["entropy"], entropy, atol=1e-5, rtol=1e-5)


def test_a_crew_has_enough_micro_batches_to_deal_out(make_model):
    u = Updater(make_model(), Keep(make_model().parameters(), lr=0.0), [], bind("reduce", "token_mean"), tokens_per_microbatch=16_384)
    assert u._budget(SimpleNamespace(n_tokens=20_000)) == 16_384
    u.crew = SimpleNamespace(n=2)
    assert [u._budget(SimpleNamespace(n_tokens=n)) for n in (20_000, 100, 1_000_000)] == [5_000, 2_048, 16_384]


def test_the_option_and_its_refusals(make_model):
    model = make_model()
    objectives = {"clip": Plugin("clip")}
    assert [Updater.from_config(Config(objectives=objectives, update=Update(shared_prefix=c)), model).share for c in ("auto", "always", "never")] == [
        True, True, False,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="Did you mean 'always'"):
        shares(model, "alway")
    plain = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7))
    assert not shares(plain, "auto") and not shares(plain, "never")
    with pytest.raises(ConfigError, match="shared_prefix=always: the attention of a Sequential is not exchangeable"):
        shares(plain, "always")
    model.config.logit_scale = 0.5  # applied by the whole model, not by its head: hidden states alone would give other logits
    with pytest.raises(ConfigError, match="changes its logits after the output head"):
        shares(model, "always")
    del model.config.logit_scale
    model.config.sliding_window = 8
    with pytest.raises(ConfigError, match="sliding_window=8, which is not implemented"):
        shares(model, "always")
    model.config.sliding_window, model.config.layer_types = None, ["full_attention", "sliding_attention"]
    with pytest.raises(ConfigError, match="has sliding_attention layers"):
        shares(model, "always")
