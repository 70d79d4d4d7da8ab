"""What hindsight teachers cost beside the student's own forward pass. Run: python tests/bench/bench_teachers.py [--out FILE.json]

1. SD-Search: `search_peers` (a pass without and one with hindsight, top-50 of 16,384, query tokens only, chunked) beside the plain way: the whole
   [N, V] of both contexts, and the divergence of them. Goal: at most a quarter of the plain way's memory, and less time.
2. StepOPSD: `peer` on episodes of 20 steps in 500 tokens that are one segment each, hindsight once ("start") and before every step ("turn"); and
   on the same steps as segments of their own, where both are one. Goal: "start" at most 2 times the student's pass: a peer is as long as it.

Each part runs in a process of its own: peak memory (resident, Linux) is that of the work alone, seconds are CPU seconds, medians of 3.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _out import write
from transformers import Qwen3Config, Qwen3ForCausalLM

from agentgym.renderer import Renderer
from agentgym.rollout import Stream
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.hindsight import Context, rectangles
from agentgym.trainers.streams import Round, score
from agentgym.trainers.teacher.peer import peer
from agentgym.trainers.teacher.search_peers import search_peers
from agentgym.trainers.tokenizer import build_tokenizer
from agentgym.types import Completion, Message, Status, Step, Task, Trajectory

WORDS = [a + b + c for a in "bdfgklmn" for b in "aeiou" for c in "lmnrst"]
VOCABULARY = 16_384
BUDGET = 4096
PARTS = ["search: student", "search: teacher", "search: plain way"]
PARTS += ["peer, one segment: student", "peer, one segment: start", "peer, one segment: turn", "peer, segments: student", "peer, segments: start"]


def renderer() -> Renderer:
    return Renderer(build_tokenizer([" ".join(WORDS), "<search> </search>"], vocab=600, max_length=8192))


def model() -> Qwen3ForCausalLM:
    """Return 0.6M in the body and 2.1M in the head: Qwen3 with a vocabulary of 16,384."""
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).eval()


def words(rng: np.random.Generator, n: int) -> str:
    return " ".join(rng.choice(WORDS, n))


def episode(r: Renderer, rng: np.random.Generator, group: str, turns: list[tuple[int, str]], *, success: bool, window: bool) -> Trajectory:
    """Return an episode of turns (words that are read, text that is written); `window`: every turn is a new context."""
    stream, history, steps = Stream(r), [], []
    for read, text in turns:
        now = Message("user", words(rng, read))
        messages = [*([] if window else history), now]
        prompt, new = stream.prompt(messages)
        done = Completion(text, ids := r.encode_completion(text), [-1.0] * len(ids))
        stream.answer(messages, done)
        history += [now, Message("assistant", text)]
        steps.append(Step(prompt, new, done, text, True, "", 0.0, ""))
    return Trajectory(Task(group, "toy", "train"), group, steps, outcome=float(success), success=success, status=Status.TERMINATED)


def search_round(r: Renderer) -> tuple[Batch, Round]:
    """Return 2 groups of 4: three searches of 8 words after 12 of thought, documents of 150 words, an answer."""
    rng = np.random.default_rng(0)
    found = []
    for g in range(2):
        for i in range(4):
            turns = [(60 if k == 0 else 150, f"{words(rng, 12)} <search> {words(rng, 8)} </search>") for k in range(3)] + [(150, words(rng, 14))]
            found.append(episode(r, rng, f"g{g}", turns, success=i % 2 == 0, window=False))
    return pack(found, discount=1.0), Round(found, 100, 1.0, BUDGET)


def peer_round(r: Renderer, *, window: bool) -> tuple[Batch, Round]:
    """Return a group of 8 with 20 steps: 17 words read, 5 written."""
    rng = np.random.default_rng(0)
    found = [episode(r, rng, "g", [(17, words(rng, 5)) for _ in range(20)], success=i % 2 == 0, window=window) for i in range(8)]
    return pack(found, discount=1.0), Round(found, 0, 1.0, BUDGET)


@torch.no_grad()
def plain_way(m: Qwen3ForCausalLM, r: Renderer, batch: Batch, round: Round) -> torch.Tensor:
    """Return the divergence at every written token from the whole [N, V] of both contexts, as most code has it."""
    teacher = search_peers(m, r)
    hinted = teacher._contexts(batch, round, batch.sampled)
    both = []
    for contexts in ([Context(c.unit, c.unit.start, []) for c in hinted], hinted):
        logq = torch.zeros(batch.n_tokens, VOCABULARY)
        for rows, source, _ in rectangles(contexts, batch, batch.sampled, BUDGET, torch.device("cpu")):
            logits = m(input_ids=rows.ids).logits.log_softmax(-1)[:, :-1]
            after = rows.inside.clone()
            after[:, 0] = False
            own = rows.flat(after) & (source >= 0)
            place = torch.zeros_like(rows.inside).masked_scatter(rows.inside, own)
            logq[source[own]] = logits[place[:, 1:]]
        both.append(logq)
    middle = torch.logaddexp(*both) - torch.tensor(2.0).log()
    return 0.5 * sum((x.exp() * (x - middle)).sum(-1) for x in both)


def work_of(part: str) -> tuple[Callable[[], Any], int]:
    """Return what a part does, and the number of tokens in its batch."""
    r, m = renderer(), model()
    kind, how = part.split(": ")
    batch, round = search_round(r) if kind == "search" else peer_round(r, window=kind.endswith(" segments"))
    if how == "student":
        return lambda: score(m, batch, temperature=1.0, budget=BUDGET), batch.n_tokens
    if how == "plain way":
        return lambda: plain_way(m, r, batch, round), batch.n_tokens
    made: Any = search_peers(m, r) if how == "teacher" else peer(m, r, weights="live", place=how)  # type: ignore[arg-type]
    return lambda: made.fill(batch, round), batch.n_tokens


def resident(key: str) -> float:
    """Return a line of /proc/self/status in MB; 0 where there is no such file."""
    status = Path("/proc/self/status")
    lines = status.read_text("utf-8").splitlines() if status.exists() else []
    return next((int(x.split()[1]) / 1024 for x in lines if x.startswith(key)), 0.0)


def measure(part: str) -> dict[str, float]:
    torch.set_num_threads(1)
    work, tokens = work_of(part)
    before = resident("VmRSS")
    work()  # the peak is that of the first time: nothing is warm
    peak = max(0.0, resident("VmHWM") - before)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return {"tokens": tokens, "CPU s": statistics.median(seconds), "peak MB": peak}


def goals(found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    def share(what: str, a: str, b: str, key: str, most: float) -> dict[str, Any]:
        value = found[a][key] / found[b][key] if found[b][key] else 0.0
        return {"what": what, "value": f"{value:.2f}", "goal": f"<= {most:g}", "met": value <= most}

    return [
        share("SD-Search's teacher, memory of the plain way", "search: teacher", "search: plain way", "peak MB", 0.25),
        share("SD-Search's teacher, time of the plain way", "search: teacher", "search: plain way", "CPU s", 1.0),
        share("StepOPSD's teacher (start), times the student's pass", "peer, one segment: start", "peer, one segment: student", "CPU s", 2.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures here as JSON too")
    parser.add_argument("--part", choices=PARTS, help="measure only this, in this process")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part)))
        return
    found = {}
    for part in PARTS:
        command = [sys.executable, __file__, "--part", part]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found[part] = json.loads(done.stdout.splitlines()[-1])
        print(part, found[part], file=sys.stderr)
    write({"parts": found, "goals": goals(found)}, options.out)


if __name__ == "__main__":
    main()
