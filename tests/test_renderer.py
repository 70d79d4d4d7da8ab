"""The renderer against real fast tokenizers and chat templates: Qwen3's behaviour, ChatML, Llama 3's, and our own."""

from __future__ import annotations

import random
import time

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentgym.errors import ConfigError, PolicyError
from agentgym.renderer import Renderer
from agentgym.types import Message

TEXTS = [
    "You are in a kitchen. You see a fridge 1, a cabinet 1 and a drawer 2.\n",
    "go to fridge 1 <think>\nwhere is the apple?\n</think>",
]

# Qwen3's behaviour: reasoning is cut from earlier assistant messages but kept after the last user query, an empty block
# is put in front of an answer without reasoning there, tool results are user messages that merge when they follow each
# other.
QWEN3 = """
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- if m.role in ['user', 'system'] -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'assistant' -%}
{%- set content = m.content -%}{%- set thought = '' -%}
{%- if '</think>' in content -%}
{%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
{%- set content = content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{{- '<|im_start|>assistant\n' -}}
{%- if loop.index0 > ns.last and (loop.last or thought) -%}{{ '<think>\n' + thought + '\n</think>\n\n' }}{%- endif -%}
{{ content + '<|im_end|>\n' }}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\n' }}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}{%- endif
-%}
"""
CHATML = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA3 = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\n\n' + m.content | trim + '<|im_end|>' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"""
STRICT = """{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content + '<|im_end|>' }}{% endfor %}"""


def make(template: str, eos: str | None = "<|im_end|>") -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer: small, so that many texts have more than one segmentation."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend.train_from_iterator(
        TEXTS * 4,
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special, show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, chat_template=template, additional_special_tokens=special[1:])


def dialogue(turns: int) -> list[Message]:
    out = [Message("system", "You play."), Message("user", TEXTS[0])]
    for i in range(turns):
        out += [Message("assistant", f"go to fridge {i}"), Message("user", f"You see a drawer {i}.\n")]
    return out


@pytest.mark.parametrize("template", [QWEN3, CHATML, LLAMA3])
def test_prompt_and_bridges_equal_the_template_when_completions_are_canonical(template: str) -> None:
    tokenizer = make(template)
    r = Renderer(tokenizer)
    chat = dialogue(4)
    ids = r.render(chat[:2])
    for i in range(2, len(chat), 2):
        completion = r.encode_completion(chat[i].content)
        assert r.decode(completion) == chat[i].content
        ids += completion + r.extend([chat[i + 1]], ended=True)
    whole = tokenizer.apply_chat_template([{"role": m.role, "content": m.content} for m in chat], tokenize=False, add_generation_prompt=True)
    assert ids == tokenizer.encode(whole, add_special_tokens=False)
    assert ids == r.render(chat)


@pytest.mark.parametrize("template", [QWEN3, CHATML, LLAMA3])
def test_a_turn_that_was_cut_off_gets_its_end_token_from_the_bridge(template: str) -> None:
    r = Renderer(make(template))
    bridge = r.extend([Message("user", "ok")], ended=False)
    assert bridge[0] == r.end_id and bridge[1:] == r.extend([Message("user", "ok")], ended=True)


def test_unstable_segmentations_survive() -> None:
    """A model may sample ids that no tokenizer would choose; they stay in the context as they were sampled."""
    tokenizer = make(QWEN3)
    r = Renderer(tokenizer)
    rng, vocabulary = random.Random(0), tokenizer.get_vocab()
    canonical = r.encode_completion("go to fridge 1")
    split = [vocabulary[c] for c in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("go to fridge 1")[0][0]]
    split += [vocabulary[c] for w, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("go to fridge 1")[1:] for c in w] + [r.end_id]
    assert split != canonical and r.decode(split) == r.decode(canonical) == "go to fridge 1"
    fed = r.render(dialogue(0))
    for _ in range(20):
        sampled = split if rng.random() < 0.5 else [rng.randrange(3, 300) for _ in range(5)] + [r.end_id]
        before = list(fed)
        fed += sampled + r.extend([Message("user", "You see nothing.")], ended=True)
        assert fed[: len(before)] == before and fed[len(before) : len(before) + len(sampled)] == sampled


def test_reasoning_is_kept_when_a_conversation_is_extended() -> None:
    """Qwen3's template drops earlier reasoning from a re-rendered history; a bridge leaves what was sampled alone."""
    r = Renderer(make(QWEN3))
    text = "<think>\nwhere is the apple?\n</think>\n\ngo to fridge 1"
    ids = r.render(dialogue(0)) + r.encode_completion(text) + r.extend([Message("user", "ok")], ended=True)
    assert "where is the apple?" in r.tokenizer.decode(ids)
    again = r.render([*dialogue(0), Message("assistant", text), Message("user", "ok")])
    assert "where is the apple?" not in r.tokenizer.decode(again)


def test_options_reach_the_template_in_prompts_and_bridges() -> None:
    r = Renderer(make(QWEN3), options={"enable_thinking": False})
    for ids in (r.render(dialogue(0)), r.extend([Message("user", "ok")], ended=True)):
        assert r.tokenizer.decode(ids).endswith("assistant\n<think>\n\n</think>\n\n")
    with pytest.raises(ConfigError, match="never reads the option 'enable_thinkin'"):
        Renderer(make(QWEN3), options={"enable_thinkin": False})
    with pytest.raises(ConfigError, match="never reads the option"):
        Renderer(make(CHATML), options={"enable_thinking": False})


def test_tool_messages_merge_as_the_template_says() -> None:
    tokenizer = make(QWEN3)
    r = Renderer(tokenizer)
    got = tokenizer.decode(r.extend([Message("tool", "a"), Message("tool", "b")], ended=True))
    body = "\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>"
    assert got == f"\n<|im_start|>user{body}<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_rewrites_contents_is_run_each_time() -> None:
    r = Renderer(make(LLAMA3))
    assert r._pieces(("user",), True) is None and Renderer(make(CHATML))._pieces(("user",), True) is not None
    assert r.extend([Message("user", "  ok \n")], ended=True) == r.extend([Message("user", "ok")], ended=True)
    q = Renderer(make(QWEN3))
    assert q._pieces(("user", "assistant", "user"), False) is None, "Qwen3 strips reasoning from earlier messages"
    assert q._pieces(("system", "user"), False) is not None


@pytest.mark.parametrize("text", ["", " ", "  two  spaces ", "\n", "héllo ☃ 👩‍🚀", "a<|im_start|>b", "\u27e60\u27e7", "{{ x }}{% raw %}"])
@pytest.mark.parametrize("template", [QWEN3, CHATML])
def test_contents_are_inserted_verbatim(template: str, text: str) -> None:
    tokenizer = make(template)
    r = Renderer(tokenizer)
    whole = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
    assert r.render([Message("user", text)]) == tokenizer.encode(whole, add_special_tokens=False)
    assert r.decode(r.extend([Message("user", text)], ended=True)) == tokenizer.decode(
        tokenizer.encode(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"), skip_special_tokens=True
    )


def test_a_lone_surrogate_is_no_crash() -> None:
    r = Renderer(make(CHATML))
    assert "x?y" in r.tokenizer.decode(r.render([Message("user", "x\ud800y")]))


def test_stop_ids_come_from_tokenizer_template_and_caller() -> None:
    tokenizer = make(CHATML, eos="<|endoftext|>")  # as Qwen's base models: eos is not what ends a turn
    vocabulary = tokenizer.get_vocab()
    r = Renderer(tokenizer, stop_ids=[7])
    assert r.end_id == vocabulary["<|im_end|>"] and r.stop_ids == {vocabulary["<|endoftext|>"], r.end_id, 7}
    r = Renderer(make(CHATML, eos=None))
    assert r.end_id == vocabulary["<|im_end|>"] and r.stop_ids == {r.end_id}


def test_errors_say_what_to_do() -> None:
    tokenizer = make(CHATML)
    tokenizer.chat_template = None
    with pytest.raises(PolicyError, match=r"no chat template.*instruction-tuned"):
        Renderer(tokenizer)
    r = Renderer(make(STRICT))
    with pytest.raises(PolicyError, match="refuses the roles user → assistant → user → user: roles must alternate"):
        r.extend([Message("user", "a"), Message("user", "b")], ended=True)
    drops = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
    with pytest.raises(PolicyError, match="drops or rewrites an earlier assistant message"):
        Renderer(make(drops))


@pytest.mark.parametrize("template", [QWEN3, CHATML])
def test_a_turn_is_cheap(template: str) -> None:
    """At 1000 turns a second there is no room for a template run (about 100 µs) and an uncached tokenizer call in every one."""
    r = Renderer(make(template))
    turns = [[Message("user", f"You see a drawer {i % 50}.")] for i in range(2000)]
    completions = [[30 + i % 50, 40, 50, r.end_id] for i in range(2000)]
    begin = time.process_time()
    for new, completion in zip(turns, completions, strict=True):
        r.decode(completion)
        r.extend(new, ended=True)
    assert (time.process_time() - begin) / 2000 < 50e-6
