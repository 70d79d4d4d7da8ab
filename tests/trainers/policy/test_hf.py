"""Continuous batching against plain full forward passes: the same numbers, whatever shares a batch with whom."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentgym.errors import ConfigError, PolicyError
from agentgym.policy import Policy, Request
from agentgym.renderer import Renderer
from agentgym.trainers.model import add_lora, load_model
from agentgym.trainers.policy.hf import hf
from agentgym.types import Completion, Sampling

SIZE: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "head_dim": 16, "max_position_embeddings": 512, "eos_token_id": 1, "pad_token_id": 0, "initializer_range": 0.1,
}  # fmt: skip


def make_model(family: str = "qwen3", kv_heads: int = 2) -> PreTrainedModel:
    torch.manual_seed(0)
    config, cls = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}[family]
    return cls(config(**SIZE, num_key_value_heads=kv_heads)).eval()


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors on a busy machine: threads would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(load_model("tiny", corpus=["a b c"])[1])


def expected(model: torch.nn.Module, prompt: list[int], tokens: list[int], temperature: float) -> torch.Tensor:
    """Return the log-probabilities of `tokens` after `prompt` from one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float()
    return (logits / (temperature or 1.0)).log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


async def episode(
    policy: hf,
    i: int,
    *,
    turns: int = 4,
    pause: float = 0.0,
    check: Callable[[list[int], Completion, float], None] | None = None,
    begin: list[int] | None = None,
) -> list[Completion]:
    """Play turns with prompts and completions of ragged lengths; contexts are extended token for token. `begin`: the first prompt."""
    rng, context, out = random.Random(i), [], []
    for turn in range(turns):
        context = context + [rng.randrange(6, 250) for _ in range(rng.randrange(1, 40))]
        context = list(begin) if begin and not turn else context
        temperature = rng.choice([0.0, 0.7, 1.0, 1.3])
        c = await policy.complete(
            Request(f"e{i}", 100 * i + turn, tokens=context),
            Sampling(max_tokens=rng.randrange(1, 12), temperature=temperature),
        )
        if check:
            check(context, c, temperature)
        out.append(c)
        context = context + (c.tokens or [])
        if pause:
            await asyncio.sleep(pause * rng.random())
    policy.release(f"e{i}")
    return out


def play(policy: hf, *episodes: Coroutine[Any, Any, list[Completion]]) -> list[list[Completion]]:
    async def main() -> list[list[Completion]]:
        return await asyncio.wait_for(asyncio.gather(*episodes), 60)

    return asyncio.run(main())


@pytest.mark.parametrize(("family", "kv_heads"), [("qwen3", 1), ("qwen3", 2), ("llama", 4), ("llama", 2)])
@pytest.mark.parametrize(("slots", "pause"), [(64, 0.0), (5, 0.0), (5, 0.01), (1, 0.0)])
def test_logprobs_are_those_of_a_full_forward_pass(family: str, kv_heads: int, slots: int, pause: float, renderer: Renderer) -> None:
    model = make_model(family, kv_heads)
    policy = hf(model, renderer, slots=slots)
    worst = 0.0

    def check(prompt: list[int], c: Completion, temperature: float) -> None:
        nonlocal worst
        assert c.tokens and c.logprobs and len(c.tokens) == len(c.logprobs)
        worst = max(worst, (expected(model, prompt, c.tokens, temperature) - torch.tensor(c.logprobs)).abs().max().item())

    play(policy, *(episode(policy, i, pause=pause, check=check) for i in range(17)))
    assert worst < 1e-5
    assert model.config._attn_implementation != "agentgym_slots"
    assert policy.stats()["reused"] > 0


@pytest.mark.parametrize(("slots", "pause", "budget"), [(64, 0.0, 8192), (64, 0.0, 16), (5, 0.0, 8192), (5, 0.01, 50), (1, 0.0, 8192)])
def test_groups_that_begin_alike_get_the_same_numbers(slots: int, pause: float, budget: int, renderer: Renderer) -> None:
    """The first episode of a group computes the prompt, the others copy it: under eviction, chunked prompts and weights that change meanwhile."""
    model, wrong = make_model(), []
    policy = hf(model, renderer, slots=slots, prefill_tokens=budget)

    def check(prompt: list[int], c: Completion, temperature: float) -> None:
        if not isinstance(c.version, list) and c.version == policy.version:  # the weights are still those that wrote it
            wrong.append((expected(model, prompt, c.tokens or [], temperature) - torch.tensor(c.logprobs)).abs().max().item())

    async def swap() -> list[Completion]:
        for version in (1, 2):
            while policy.stats()["decoded"] < 60 * version:
                await asyncio.sleep(0)
            with torch.no_grad():
                model.get_input_embeddings().weight.mul_(1.1)
            policy.load(None, version)
        return []

    starts = [[random.Random(-g).randrange(6, 250) for _ in range(40 + 9 * g)] for g in range(4)]
    play(policy, swap(), *(episode(policy, i, pause=pause, check=check, begin=starts[i % 4]) for i in range(20)))
    assert len(wrong) > 40 and max(wrong) < 1e-5


def test_a_prompt_of_a_group_is_computed_once(renderer: Renderer) -> None:
    policy, prompt = hf(make_model(), renderer), [9] * 50

    async def main(ids: list[int], names: str) -> list[Completion]:
        return await asyncio.gather(*(policy.complete(Request(n, i, tokens=ids), Sampling(max_tokens=5)) for i, n in enumerate(names)))

    done = asyncio.run(main(prompt, "abcdefgh"))
    assert policy.stats()["prefilled"] == 50 + 7, "one prompt, and the last id of each copy, whose logits are wanted"
    assert policy.stats()["reused"] == 7 * 49 and len({tuple(c.tokens or ()) for c in done}) > 1
    asyncio.run(main(prompt, "i"))
    assert policy.stats()["prefilled"] == 58, "a later member copies from one that is still there"
    for name in "abcdefghi":
        policy.release(name)
    asyncio.run(main(prompt, "k"))
    assert policy.stats()["prefilled"] == 108
    asyncio.run(main([9] * 20, "lm"))
    assert policy.stats()["prefilled"] == 148, "a short beginning is not waited for"


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_greedy_equals_generate(family: str, renderer: Renderer) -> None:
    model = make_model(family)
    prompts = [[random.Random(i).randrange(6, 250) for _ in range(5 + 7 * i)] for i in range(6)]
    policy = hf(model, renderer)

    async def main() -> list[Completion]:
        how = Sampling(max_tokens=20, temperature=0.0)
        return await asyncio.gather(*(policy.complete(Request(str(i), i, tokens=p), how) for i, p in enumerate(prompts)))

    for prompt, c in zip(prompts, asyncio.run(main()), strict=True):
        want = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0)[0, len(prompt) :].tolist()
        assert c.tokens == want and c.finish == ("stop" if want[-1] == 1 else "length")


def test_a_completion_depends_on_its_seed_and_context_alone(renderer: Renderer) -> None:
    model = make_model()
    policy = hf(model, renderer)
    together = play(policy, *(episode(policy, i) for i in range(9)))
    alone = [play(p, episode(p, i))[0] for i in range(9) for p in [hf(model, renderer, slots=1, prefill_tokens=3)]]
    assert [[c.tokens for c in e] for e in together] == [[c.tokens for c in e] for e in alone]

    async def main(seed: int) -> list[int] | None:
        return (await policy.complete(Request("x", seed, tokens=[7, 8, 9]), Sampling(max_tokens=12))).tokens

    assert asyncio.run(main(3)) == asyncio.run(main(3)) != asyncio.run(main(4))
    assert asyncio.run(main(-1)) == asyncio.run(main(2**64 - 1)), "any Python int is a seed"


def one(policy: hf, sampling: Sampling, tokens: list[int] | None = None, seed: int = 0) -> Completion:
    return asyncio.run(policy.complete(Request("one", seed, tokens=tokens or [7, 8, 9]), sampling))


def test_stop_strings_end_a_completion_and_stay_in_it(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer)
    full = one(policy, Sampling(max_tokens=40))
    assert full.tokens and full.finish == "length" and len(full.tokens) == 40
    stop = full.text[10:13]
    c = one(policy, Sampling(max_tokens=40, stop=("never-ever", stop)))
    assert c.finish == "stop" and c.tokens == full.tokens[: len(c.tokens or [])]
    assert stop in c.text and stop not in renderer.decode((c.tokens or [])[:-1])


def test_the_end_token_ends_a_completion(renderer: Renderer) -> None:
    model = make_model()
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.weight[1] = 0  # all logits equal: the end token comes with probability 1/300
    policy = hf(model, renderer)
    ends = [one(policy, Sampling(max_tokens=300), seed=s) for s in range(5)]
    for c in ends:
        assert c.tokens and (1 not in c.tokens[:-1]) and (c.finish == "stop") == (c.tokens[-1] == 1)
    assert any(c.finish == "stop" for c in ends)


def test_context_limits(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer, max_context=20)
    c = one(policy, Sampling(max_tokens=50), [5] * 15)
    assert c.finish == "length" and len(c.tokens or []) == 5
    with pytest.raises(PolicyError, match="has 20 tokens, the limit is 20"):
        one(policy, Sampling(), [5] * 20)
    with pytest.raises(PolicyError, match="sends no tokens"):
        asyncio.run(policy.complete(Request("x", 0), Sampling()))
    with pytest.raises(PolicyError, match="max_tokens must be at least 1"):
        one(policy, Sampling(max_tokens=0))
    with pytest.raises(ConfigError, match="more than the model's 512 positions"):
        hf(make_model(), renderer, max_context=513)
    with pytest.raises(ConfigError, match=r"policy.slots must be at least 1"):
        hf(make_model(), renderer, slots=0)


def test_only_what_is_new_is_computed(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer)
    first = one(policy, Sampling(max_tokens=4), [9] * 50)
    assert policy.stats()["prefilled"] == 50
    longer = [9] * 50 + (first.tokens or []) + [11] * 10
    one(policy, Sampling(max_tokens=4), longer)
    assert policy.stats()["prefilled"] == 50 + 1 + 10, "the last sampled id was never fed, so it is part of the new tail"
    one(policy, Sampling(max_tokens=1), [9] * 30 + [12] * 5)
    assert policy.stats()["prefilled"] == 61 + 5, "a rebuilt context keeps the prefix that still holds"
    one(policy, Sampling(max_tokens=1), [9] * 30)
    assert policy.stats()["prefilled"] == 66 + 1, "a shorter context feeds its last id again: its logits are wanted"
    policy.release("one")
    one(policy, Sampling(max_tokens=1), [9] * 30)
    assert policy.stats()["prefilled"] == 67 + 30


def test_an_idle_episode_loses_its_slot_only_when_others_wait_for_long(renderer: Renderer) -> None:
    model = make_model()
    policy = hf(model, renderer, slots=2)
    for i in range(5):  # nobody is writing: the longest idle is evicted at once
        asyncio.run(policy.complete(Request(str(i), i, tokens=[9] * 10), Sampling(max_tokens=2)))
    assert policy.stats()["evicted"] == 3
    patient = hf(model, renderer, slots=4)
    play(patient, *(episode(patient, i) for i in range(12)))
    assert patient.stats()["evicted"] == 0, "episodes that come back at once keep their slots"


def test_weights_change_in_place_or_by_state_dict(renderer: Renderer) -> None:
    model, policy = make_model(), hf(make_model(), renderer)
    before = one(policy, Sampling(max_tokens=6))
    with torch.no_grad():
        for p in policy.model.parameters():
            p.mul_(1.1)
    policy.load(None, 3)
    after = one(policy, Sampling(max_tokens=6))
    assert (before.version, after.version) == (0, 3)
    torch.testing.assert_close(torch.tensor(after.logprobs), expected(policy.model, [7, 8, 9], after.tokens or [], 1.0), atol=1e-5, rtol=0)
    policy.load(model.state_dict(), 4)
    again = one(policy, Sampling(max_tokens=6))
    assert again.version == 4 and again.tokens == before.tokens
    assert again.logprobs == pytest.approx(before.logprobs, abs=1e-6)


def test_weights_that_change_in_flight_give_every_token_its_version(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer)

    async def main() -> Completion:
        turn = asyncio.create_task(policy.complete(Request("x", 0, tokens=[7, 8, 9]), Sampling(max_tokens=30)))
        while policy.stats()["decoded"] < 10:
            await asyncio.sleep(0)
        with torch.no_grad():
            policy.model.get_input_embeddings().weight.mul_(1.5)
        policy.load(None, 1)
        return await turn

    c = asyncio.run(main())
    assert isinstance(c.version, list) and c.version == [0] * 10 + [1] * 20
    want = expected(policy.model, [7, 8, 9], c.tokens or [], 1.0)
    torch.testing.assert_close(torch.tensor(c.logprobs)[10:], want[10:], atol=1e-5, rtol=0)


def test_a_failing_forward_pass_reaches_every_turn_and_the_policy_recovers(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer, slots=3)
    hook = policy.model.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(MemoryError("no room")))

    async def main() -> list[Any]:
        turns = (policy.complete(Request(str(i), i, tokens=[7, 8]), Sampling()) for i in range(8))
        return await asyncio.wait_for(asyncio.gather(*turns, return_exceptions=True), 30)

    results = asyncio.run(main())
    assert all(isinstance(r, PolicyError) and "Qwen3ForCausalLM failed: MemoryError: no room" in str(r) for r in results)
    hook.remove()
    assert policy.model.config._attn_implementation != "agentgym_slots"
    assert all(isinstance(r, Completion) for r in asyncio.run(main()))


def test_cancelled_turns_free_their_slots(renderer: Renderer) -> None:
    model = make_model()
    policy = hf(model, renderer, slots=2)

    async def main() -> Completion:
        turns = [asyncio.create_task(policy.complete(Request(str(i), i, tokens=[7, 8]), Sampling(max_tokens=400))) for i in range(6)]
        for _ in range(20):
            await asyncio.sleep(0)
        for t in turns:
            t.cancel()
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*turns, return_exceptions=True))
        # Episode 0 goes on: what its cancelled turn wrote into the cache must not be mistaken for its context.
        return await asyncio.wait_for(policy.complete(Request("0", 1, tokens=[7, 8, 30]), Sampling(max_tokens=5)), 30)

    c = asyncio.run(main())
    torch.testing.assert_close(torch.tensor(c.logprobs), expected(model, [7, 8, 30], c.tokens or [], 1.0), atol=1e-5, rtol=0)


def test_a_loop_that_ends_early_leaves_a_usable_policy(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer)

    async def abandon() -> None:
        task = asyncio.create_task(policy.complete(Request("x", 0, tokens=[7, 8]), Sampling(max_tokens=500)))
        await asyncio.sleep(0.01)
        assert not task.done()

    asyncio.run(abandon())
    assert len(one(policy, Sampling(max_tokens=3)).tokens or []) == 3


def test_close(renderer: Renderer) -> None:
    policy = hf(make_model(), renderer)

    async def main() -> None:
        turn = asyncio.create_task(policy.complete(Request("x", 0, tokens=[7, 8]), Sampling(max_tokens=500)))
        await asyncio.sleep(0)
        await policy.close()
        await policy.close()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(main())
    with pytest.raises(PolicyError, match="closed"):
        one(policy, Sampling())
    assert isinstance(policy, Policy) and policy.wants == "tokens"


def test_the_trainer_keeps_its_mode_and_adapters_take_part(renderer: Renderer) -> None:
    pytest.importorskip("peft")
    model = add_lora(make_model(), r=4, target_modules=("q_proj", "v_proj"))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_B" in n:
                p += 0.2
    model.train()
    policy = hf(model, renderer)
    c = one(policy, Sampling(max_tokens=8))
    assert model.training
    model.eval()
    torch.testing.assert_close(torch.tensor(c.logprobs), expected(model, [7, 8, 9], c.tokens or [], 1.0), atol=1e-5, rtol=0)
    assert not torch.allclose(torch.tensor(c.logprobs), expected(make_model(), [7, 8, 9], c.tokens or [], 1.0), atol=1e-3)


def test_models_that_it_cannot_run_are_refused(renderer: Renderer) -> None:
    with pytest.raises(PolicyError, match="sliding_attention layers"):
        config = Qwen3Config(
            **SIZE,
            num_key_value_heads=2,
            layer_types=["full_attention", "sliding_attention"],
            sliding_window=8,
            use_sliding_window=True,
        )
        hf(Qwen3ForCausalLM(config), renderer)
    policy = hf(MistralForCausalLM(MistralConfig(**SIZE, num_key_value_heads=2, sliding_window=8)), renderer)
    with pytest.raises(PolicyError, match="sliding_window, which policy 'hf' does not implement"):
        one(policy, Sampling())
    with pytest.raises(PolicyError, match="not exchangeable"):
        hf(torch.nn.Linear(2, 2), renderer)
