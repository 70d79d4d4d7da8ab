"""The dry run: every size that is bundled has a plan, memory is what real tensors take, and what cannot work is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import agentgym
from agentgym.config import Plugin, load
from agentgym.errors import ConfigError
from agentgym.trainers import memory, setup
from agentgym.trainers.forward import features
from agentgym.trainers.model import load_model
from agentgym.trainers.plan import plan
from agentgym.trainers.update import Updater

SCALE = sorted((Path(agentgym.__file__).resolve().parents[1] / "trainers" / "scale").glob("*.yaml"))
GPUS = torch.cuda.device_count()


@pytest.mark.parametrize("path", SCALE, ids=[p.stem for p in SCALE])
@pytest.mark.parametrize("task", ["alfworld_chat", "webshop_chat"])
def test_every_size_has_a_plan(path: Path, task: str) -> None:
    """Nothing is refused but the GPUs that are not here, and all of it fits a device of 80 GB with room for the allocator."""
    found = plan(load([task, path]))
    assert all(r.startswith("run.device=cuda: this machine") for r in found.refused), found.refused
    assert len(found.refused) == (path.stem != "two_cpus" and not GPUS)
    peaks = [float(x.split(" GB: ")[1].split()[0]) for x in found.lines if " GB: " in x]
    assert peaks and max(peaks) < 72
    assert "credit      gigpo" in found.text() and "M parameters" in found.text()


def test_the_plan_of_eight_gpus_by_hand() -> None:
    """7,615,616,512 parameters over 8 devices: float32 weights, gradients and two moments; whole in bfloat16 while playing."""
    c = load(["alfworld_chat", "eight_gpus"], ["objectives.kl.coefficient=0.01"])
    found = memory.estimate(c, memory.skeleton(c.model), ranks=8, reference=True, context=8192)
    n = 7_615_616_512
    assert found.always == {"weights": 4 * n / 8, "optimizer state": 8 * n / 8, "frozen reference": 4 * n / 8}
    assert found.update["gradients"] == 4 * n / 8
    assert found.play["gathered weights"] == 2 * n
    # 28 layers, keys and values of 4 heads of 128 numbers, 2 bytes each; 32 groups of 8 over 8 devices
    assert found.play["keys and values of 32 contexts of 8,192"] == 32 * 8192 * 28 * 2 * 4 * 128 * 2
    assert found.update["logits of a chunk"] == 2**26 * 14
    # recomputed: of each layer its input is kept, of one everything
    outside, layer = memory.activations(c.model, 2)
    assert found.update["activations of 16,384 tokens"] == 16384 * (28 * 3584 * 2 + layer + outside)
    text = plan(c).text()
    assert "frozen reference 3.81" in text and "start it with torchrun --nproc-per-node 8 -m agentgym run" in text


def test_four_machines_hold_a_copy_each() -> None:
    c = load(["alfworld_chat", "four_machines"])
    found = memory.estimate(c, memory.skeleton(c.model), ranks=32, reference=False, context=8192)
    assert found.always["weights"] == 4 * 7_615_616_512 / 8
    assert (
        "torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m agentgym run …, on each machine" in plan(c).text()
    )


def test_adapters_and_offloading_need_less() -> None:
    c = load(["alfworld_chat", "eight_gpus"], ["model.lora.r=16", "model.dtype=bfloat16"])
    model = memory.skeleton(c.model)
    # each layer's seven matrices, r · (rows + columns): q, o 3584 x 3584; k, v 512 x 3584; gate, up, down 18944 x 3584
    pytest.importorskip("peft")
    real, _ = load_model("tiny", lora={"r": 2}, layers=2)
    planned = memory.skeleton(Plugin("tiny", {"layers": 2, "lora": {"r": 2}}))
    counts = [sum(p.numel() for p in m.parameters() if p.requires_grad) for m in (real, planned)]
    assert counts[0] == counts[1] > 0
    adapters = 28 * 16 * (2 * (3584 + 3584) + 2 * (512 + 3584) + 3 * (18_944 + 3584))
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == adapters
    found = memory.estimate(c, model, ranks=8, reference=True, context=8192)
    assert found.always == {"weights": (2 * 7_615_616_512 + 4 * adapters) / 8, "optimizer state": 8 * adapters / 8}  # the reference is the same
    c.shard.offload = True
    found = memory.estimate(c, model, ranks=8, reference=True, context=8192)
    assert not found.always and "gradients" not in found.update


def test_the_estimate_is_what_real_tensors_take() -> None:
    """A real model: parameters, AdamW's and Muon's state, and what a forward pass keeps, within a tenth."""
    section = Plugin("tiny", {"layers": 3})
    model, _ = load_model("tiny", corpus=(f"word{i}" for i in range(600)), layers=3)
    bare = memory.skeleton(section)
    assert model.config.vocab_size == 512 and sum(p.numel() for p in bare.parameters()) == sum(p.numel() for p in model.parameters())
    for name in ("adamw", "muon"):
        c = load(["alfworld"], [f"optimizer={name}"])
        updater = Updater.from_config(c, model)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        updater.optimizer.step()
        real = sum(x.numel() * 4 for x in memory._tensors(updater.optimizer.state_dict()) if x.ndim)
        assert memory.optimizer_state(c, list(bare.named_parameters())) == real > 0
    seen: dict[int, torch.Tensor] = {}
    own = {p.untyped_storage()._cdata for p in model.parameters()}

    def watch(x: torch.Tensor) -> torch.Tensor:
        if x.untyped_storage()._cdata not in own:
            seen[x.untyped_storage()._cdata] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(watch, lambda x: x):
        kept = features(model, torch.zeros(4, 100, dtype=torch.int64), torch.arange(400))
    assert kept[0].requires_grad
    real = sum(x.untyped_storage().nbytes() for x in seen.values())
    outside, layer = memory.activations(section, 4)
    assert 400 * (outside + 3 * layer) == pytest.approx(real, rel=0.1)


def test_a_known_size_is_that_of_the_model() -> None:
    published = {"0.5B": 494_032_768, "1.5B": 1_543_714_304, "3B": 3_085_938_688, "7B": 7_615_616_512, "14B": 14_770_033_664}
    for size, n in published.items():
        assert sum(p.numel() for p in memory.skeleton(Plugin(f"Qwen/Qwen2.5-{size}-Instruct")).parameters()) == n
    assert sum(p.numel() for p in memory.skeleton(Plugin("smollm2")).parameters()) == 134_515_008


@pytest.mark.parametrize(
    "changes, says",
    [
        (
            ["shard.ranks=48", "rollout.tasks=32"],
            r"stage rl: 48 processes share 32 groups, so 16 of them would play nothing. Set rollout.tasks to 48",
        ),
        (["policy.max_context=20000"], r"tokens_per_microbatch=16384 is less than the longest context, policy.max_context=20000"),
        (["shard.group=3"], "shard.group=3 does not divide the 8 processes"),
        (["critic=head", "credit=gae"], "the critic head cannot work with a sharded model"),
        (["rollout.max_staleness=2"], "which a sharded model has not: set it to 0"),
        (["objectives.clip.hihg=1"], "hihg"),
        (["credit=gae"], r"gae needs 'value', which nothing provides"),
        (["model.name=nobody/nothing"], "its size is not known"),
        (["model.lora.rank=3"], "rank"),
        (["run.device=cpu", "shard.offload=true"], "with run.device=cpu they are there already"),
    ],
)
def test_what_cannot_work_is_refused_with_all_else_shown(changes: list[str], says: str) -> None:
    import re

    found = plan(load(["alfworld_chat", "eight_gpus"], changes))
    assert any(re.search(says, r) for r in found.refused), found.refused
    assert "stage rl: 150 updates" in found.text() and found.text().endswith("This would not run.")


def test_what_should_be_known_is_noted() -> None:
    found = plan(load(["alfworld_chat"], ["run.device=cpu", "shard.ranks=3", "shard.compute=bfloat16"]))
    text = "\n".join(found.notes)
    assert "bfloat16 on a CPU without instructions for it is 8 to 18 times slower" in text
    assert "16 groups over 3 processes: some play one more than others" in text and "policy.max_context is not set" in text
    assert not found.refused and found.text().endswith("This would run.")


def test_what_a_cluster_starts_is_told_and_what_it_cannot_do_refused() -> None:
    of = lambda *changes: plan(load(["alfworld"], ["run.workers=1", *changes])).text()  # noqa: E731
    text = of("cluster.engines={number: 2, cpus: 2}", "cluster.envs={number: 4, concurrency: 3}")
    assert "cluster local starts 2 engines (2 CPUs, 0 GPUs each), 4 environment workers (1 CPUs and 3 environments each)" in text
    assert "note: the memory while playing is that of each engine here" in text and text.endswith("This would run.")
    text = of("cluster.trainer.number=2")
    assert "cluster local starts 2 trainer processes (1 CPUs, 0 GPUs each)" in text and "memory on each of 2 devices" in text
    assert "note: the cluster starts all processes" in text and "torchrun" not in text and text.endswith("This would run.")
    large = plan(load(["alfworld_chat", "eight_gpus"], ["cluster={name: ray, trainer: {number: 8, gpus: 1}}"])).text()
    assert "note: the trainers need 8 GPUs with 46 GB or more each; the machines of the cluster were not looked at" in large
    assert large.endswith("This would run.")
    for changes, says in [
        (["cluster.engines.number=2", "run.workers=2"], "REFUSED: run.workers=2 shares one model"),
        (["cluster.engines.number=2", "policy=vllm"], "REFUSED: policy 'vllm' works in one process"),
        (["cluster.engines.number=2", "shard.ranks=2"], "REFUSED: cluster.engines and cluster.envs serve one trainer"),
        (["cluster.trainer.number=2", "cluster.envs.number=1"], "REFUSED: cluster.trainer.number=2: the processes share one model"),
        (["policy=vllm", "stages.rl.rollout.max_staleness=1"], "REFUSED: policy 'vllm' works in one process: set run.workers=1"),
        (["cluster.engines.nubmer=2"], "REFUSED: cluster.engines: unknown key 'nubmer'. Did you mean 'number'"),
    ]:
        text = of(*changes)
        assert says in text and text.endswith("This would not run."), text


def test_the_command(command: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = command("run", "alfworld", "--dry-run")
    assert code == 0 and out.rstrip().endswith("This would run.") and "stage warm: 80 updates" in out and not list(Path.cwd().iterdir())
    code, out, _ = command("run", "alfworld", "run.device=cuda", "--dry-run")
    if not GPUS:
        assert code == 1 and "REFUSED: run.device=cuda: this machine has no GPU that torch sees. Needed: a GPU with" in out


def test_torchrun_finds_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "agentgym", "run", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--dry-run" in done.stdout


def test_recomputing_layers_is_done_in_evaluation_mode_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model stays in evaluation mode, with dropout off; transformers alone would recompute nothing then."""
    for saving, lora in ((False, None), (True, None), (True, {"r": 2})):
        if lora:
            pytest.importorskip("peft")
        model, _ = load_model("tiny", gradient_checkpointing=saving, lora=lora, layers=2)
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, kept=kept: kept.append(x.numel()) or x, lambda x: x):  # type: ignore[func-returns-value]
            features(model, torch.zeros(1, 50, dtype=torch.int64), torch.arange(50))
        assert (sum(kept) < 40_000) == saving and not model.training


def test_a_model_is_made_the_same_for_a_plan_and_a_run() -> None:
    c = load(["alfworld"])
    real, _ = setup.model_of(c, "cpu")
    planned = memory.skeleton(c.model)
    assert [(n, p.shape[1:]) for n, p in planned.named_parameters()] == [(n, p.shape[1:]) for n, p in real.named_parameters()]


def test_a_model_whose_size_is_not_known() -> None:
    with pytest.raises(ConfigError, match=r"model 'x/y': its size is not known.*Known without files: Qwen/Qwen2.5-0.5B-Instruct"):
        memory.shape_of(Plugin("x/y"))
