"""CPU seconds of one complete update, TRL's GRPOTrainer and ours, in turns in one process.

    python tests/bench/bench_update_vs_trl.py [--out FILE.json]

Equal work on both sides: the same model (5.8M parameters, Qwen3, random weights, vocabulary 4096), 16 episodes in 2 groups, 5 turns of
exactly 16 sampled tokens, 4 observations of 40 tokens, 337 tokens a sequence (asserted), GRPO's advantage, a clipped objective without KL,
AdamW, fp32, one thread (or --threads 2).

TRL (needs `pip install 'agentgym[bench]'`): its own multi-turn path as a user meets it, `environment_factory`, on the CPU without vLLM, defaults
but for `use_cpu, bf16=False, gradient_checkpointing=False, beta=0` and the lengths. A model with random weights writes no tool call, so two things
are forced: `parse_response` reads every completion as a call (cheaper than TRL's own parsing), and the end token is suppressed, so that every turn
has its 16 tokens. TRL then generates as it always does: all episodes in lockstep, the whole context anew each turn.

Ours: the parts that `agentgym run` is made of: rollout.collect, policy hf, renderer, pack, credit grpo, Updater with objective clip and reduce
token_mean; the end token ends nothing, so that every turn has its 16 tokens.

Time is CPU seconds, the median over the updates after the first of each. Goal: ours at most a third of TRL's.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _out import write
from bench_loop import Fixed, Shape, make_agent, make_model, make_tokenizer, play, updater, words

from agentgym import registry
from agentgym.trainers.batch import pack
from agentgym.trainers.call import call

SHAPE = Shape(groups=2, size=8, turns=5, prompt=97, sampled=16, observed=40)
# As the tokenizer's own template, plus tool calls, which TRL wants to see rendered.
TEMPLATE = (
    "{%- for m in messages -%}{{ '<|' + m.role + '|>' + m.content }}"
    "{%- for c in m.tool_calls or [] -%}{{ c.function.name }}{{ c.function.arguments | tojson }}{%- endfor -%}"
    "{%- if m.role == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)
Row = dict[str, float]


class Counter:
    """Counts the tokens that go through a model's decoder, padding included."""

    def __init__(self, model: Any) -> None:
        self.tokens = 0
        model.model.register_forward_pre_hook(self._add, with_kwargs=True)

    def _add(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.tokens += (args[0] if args else kwargs["input_ids"]).numel()


class Ours:
    """Our side: calling it does one update and returns what it cost."""

    def __init__(self) -> None:
        self.model = make_model("5.8M")
        self.counter = Counter(self.model)
        self.agent = make_agent(self.model, make_tokenizer(), SHAPE.sampled)
        self.updater = updater(self.model)
        self.credit = registry.bind("credit", "grpo", {})
        self.update = 0

    def __call__(self) -> Row:
        start, tokens = time.process_time(), self.counter.tokens
        played = play(self.agent, lambda: Fixed(SHAPE), Fixed(SHAPE).tasks(), SHAPE.size)
        rolled, rolled_tokens = time.process_time(), self.counter.tokens
        batch = pack(played, discount=0.95)
        batch.set_advantage(call(self.credit, batch))
        metrics = self.updater.run(batch, generator=torch.Generator().manual_seed(self.update))
        self.update += 1
        self.agent.policy.load(None, self.update)
        end = time.process_time()
        lengths = torch.bincount(batch.segment).tolist()
        assert not metrics["skipped"] and set(lengths) == {SHAPE.length} and len(lengths) == SHAPE.groups * SHAPE.size, (metrics, lengths)
        assert int(batch.sampled.sum()) == len(lengths) * SHAPE.turns * SHAPE.sampled
        return {
            "total": end - start,
            "generation": rolled - start,
            "update": end - rolled,
            "tokens in generation": rolled_tokens - tokens,
            "tokens in update": self.counter.tokens - rolled_tokens,
        }


class Lookout:
    """TRL's side of the environment: the tool answers with as many tokens as ours."""

    def reset(self, **row: Any) -> None:
        self.turn = 0

    def look(self, where: str) -> str:
        """
        Look around.

        Args:
            where: Where to look.

        Returns:
            What is seen.
        """
        self.turn += 1
        return words(str(self.turn), SHAPE.observed - 2)  # two role markers around it

    def get_reward(self) -> float:
        """Return a random reward."""
        return random.random()


def every_text_is_a_call(tokenizer: Any, ids: list[int], prefix: Any = None, tools: Any = None) -> dict[str, Any]:
    """Stand in for TRL's parse_response."""
    tool = {"type": "function", "function": {"name": "look", "arguments": {"where": "here"}}}
    return {"role": "assistant", "content": tokenizer.decode(ids, skip_special_tokens=True), "tool_calls": [tool]}


def run_trl(updates: int, after_each: Callable[[], None]) -> list[Row]:
    """Let TRL train for `updates` updates; `after_each` is called between them, outside of what is measured."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import trl.trainer.grpo_trainer as module
    from datasets import Dataset
    from transformers import TrainerCallback

    module.parse_response = every_text_is_a_call
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.response_template = {}  # "has one": TRL knows none for this template and would refuse it; the parser above does not read it
    model = make_model("5.8M")
    counter = Counter(model)
    row: Row = defaultdict(float)
    rows: list[Row] = []

    class Trainer(module.GRPOTrainer):  # type: ignore[name-defined, misc]
        def _generate(self, *args: Any) -> Any:
            start, tokens = time.process_time(), counter.tokens
            out = super()._generate(*args)
            row["generation"] += time.process_time() - start
            row["tokens in generation"] += counter.tokens - tokens
            prompts, completions, mask = out[0], out[1], out[2]
            assert {len(p) + len(c) for p, c in zip(prompts, completions, strict=True)} == {SHAPE.length}, [len(c) for c in completions]
            assert {sum(m) for m in mask} == {SHAPE.turns * SHAPE.sampled}
            return out

        def _compute_loss(self, *args: Any) -> Any:
            start = time.process_time()
            out = super()._compute_loss(*args)
            row["log-probabilities and loss"] += time.process_time() - start
            return out

    class Watch(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.start, self.tokens = time.process_time(), counter.tokens

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            row["total"] = time.process_time() - self.start
            row["update"] = row["total"] - row["generation"]
            row["tokens in update"] = counter.tokens - self.tokens - row["tokens in generation"]
            rows.append(dict(row))
            row.clear()
            after_each()

    prompts = [[{"role": "user", "content": words(str(i), SHAPE.prompt - 2)}] for i in range(SHAPE.groups * updates)]
    n = SHAPE.groups * SHAPE.size
    with tempfile.TemporaryDirectory() as folder:
        args = module.GRPOConfig(
            folder, use_cpu=True, bf16=False, gradient_checkpointing=False, beta=0.0, max_steps=updates, learning_rate=1e-6, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, per_device_train_batch_size=n, num_generations=SHAPE.size,
            max_completion_length=SHAPE.length, max_tool_calling_iterations=SHAPE.turns - 1,
            generation_kwargs={"max_new_tokens": SHAPE.sampled, "suppress_tokens": [tokenizer.eos_token_id]},
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": prompts})
        Trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer, environment_factory=Lookout, callbacks=[Watch()]).train()
    return rows


def medians(rows: list[Row]) -> Row:
    return {k: statistics.median(r[k] for r in rows) for k in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="updates that count, of each; one more comes before them")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--threads", type=int, default=1, help="threads of each operation; 2: what torch takes by itself on two cores")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours, mine = Ours(), []
    theirs = run_trl(options.repeat + 1, lambda: mine.append(ours()))
    a, b = medians(theirs[1:]), medians(mine[1:])
    ratio = statistics.median(y["total"] / x["total"] for x, y in zip(theirs[1:], mine[1:], strict=True))
    result = {
        "TRL": a,
        "ours": b,
        "each": {"TRL": [r["total"] for r in theirs], "ours": [r["total"] for r in mine]},
        "ratio": {k: b[k] / a[k] for k in ("total", "generation", "update")},
        "goals": [{"what": "CPU seconds per update, ours / TRL's", "value": f"{ratio:.2f}", "goal": "<= 0.33", "met": ratio <= 1 / 3}],
    }
    write(result, options.out)


if __name__ == "__main__":
    main()
