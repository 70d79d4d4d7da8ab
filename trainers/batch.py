"""Trajectories as flat tensors.

Shape legend, used in every docstring of trainers/:

    N tokens   S steps   T trajectories   G groups   R segments   (K top-k width, V vocabulary)

Tokens are stored in the order in which they were seen and written: trajectory by trajectory, step by step, prompt before completion.
Index columns point upwards: `step` [N] → S, `step_traj` [S] → T, `traj_group` [T] → G. Nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentgym.errors import DataError
from agentgym.types import Status, Step, Trajectory

from .ops import broadcast, discounted_returns, segment_mean

TOKEN = ("token", "position", "segment", "sampled", "logp_old", "version", "step", "advantage", "weight")
STEP = ("step_traj", "step_index", "step_reward", "step_penalty", "step_return", "step_state", "step_valid")
TRAJ = ("traj_group", "outcome", "success", "truncated", "length")


@dataclass
class Batch:
    """What one round of training learns from. Ids are int64, numbers float32, flags bool.

    token, position, segment   [N] the id; its index inside its segment; the segment, contiguous from 0
    sampled, version           [N] the model wrote it; version of the weights that did (-1 on tokens that the model only read)
    logp_old                   [N] log-probability under the sampler, 0 where not sampled; None when any completion came without
    step                       [N] the step whose prompt or completion the token is in
    step_traj, step_index      [S] the trajectory; the number of the step inside it
    step_reward, step_penalty  [S] the environment's reward; shaping parts, such as for an invalid action
    step_return                [S] Σ_k discount^k · step_reward, to the end of the episode
    step_state, step_valid     [S] id of (group, state key); the environment accepted the action
    traj_group, outcome        [T] the group; the return without penalties
    success, truncated, length [T] solved; cut off by a limit; number of steps
    state_text                 the state key of each id of step_state, a list of texts: similar states are found by it
    advantage, weight          [N] filled by credit and by the weight plug-ins
    streams, timings           name → [N] or [N, K], see streams.py; seconds that they took
    failed                     number of broken episodes that were left out
    """

    token: Tensor
    position: Tensor
    segment: Tensor
    sampled: Tensor
    logp_old: Tensor | None
    version: Tensor
    step: Tensor
    step_traj: Tensor
    step_index: Tensor
    step_reward: Tensor
    step_penalty: Tensor
    step_return: Tensor
    step_state: Tensor
    step_valid: Tensor
    traj_group: Tensor
    outcome: Tensor
    success: Tensor
    truncated: Tensor
    length: Tensor
    state_text: list[str] = field(default_factory=list)
    advantage: Tensor | None = None
    weight: Tensor | None = None
    streams: dict[str, Tensor] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    failed: int = 0

    @property
    def n_tokens(self) -> int:
        return self.token.numel()

    @property
    def n_steps(self) -> int:
        return self.step_traj.numel()

    @property
    def n_trajectories(self) -> int:
        return self.outcome.numel()

    @property
    def n_segments(self) -> int:
        return int(self.segment[-1]) + 1 if self.n_tokens else 0

    @property
    def scored(self) -> Tensor:
        """[N] bool: tokens that have a log-probability, which is all but the first of each segment."""
        return self.position > 0

    def set_advantage(self, advantage: Tensor, *, penalty: bool = True) -> None:
        """Set `advantage` [N] from what credit returned, [S] or [N]; `penalty`: plus the shaping penalty of the token's step."""
        self.advantage = broadcast(advantage, self)
        if penalty:
            self.advantage += broadcast(self.step_penalty, self)

    def advantage_of_steps(self) -> list[list[float]] | None:
        """Return one list per trajectory with a number per step, the mean advantage of its written tokens; None before credit."""
        if self.advantage is None:
            return None
        mean = segment_mean(self.advantage, self.step, self.sampled.float(), self.n_steps)
        return [part.tolist() for part in mean.split(self.length.tolist())]

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return self._map(lambda _, x: x.to(device))

    def select(self, trajectories: Tensor) -> Batch:
        """Return the whole trajectories of the given indices [≤ T], in the batch's own order.

        Steps, segments and trajectories are renumbered; group and state ids are labels and stay as they are.
        """
        keep_traj = torch.zeros(self.n_trajectories, dtype=torch.bool, device=self.outcome.device)
        keep_traj[trajectories] = True
        keep_step = keep_traj[self.step_traj]
        keep_token = keep_step[self.step]
        keep = {**dict.fromkeys(STEP, keep_step), **dict.fromkeys(TRAJ, keep_traj)}
        part = self._map(lambda name, x: x[keep.get(name, keep_token)])
        part.step = _renumber(keep_step)[part.step]
        part.step_traj = _renumber(keep_traj)[part.step_traj]
        part.segment = torch.unique_consecutive(part.segment, return_inverse=True)[1]
        return part

    def _map(self, f: Callable[[str, Tensor], Tensor]) -> Batch:
        """Return a copy with `f(name, column)` in place of every column that is there."""
        found: dict[str, Any] = {n: f(n, x) for n in TOKEN + STEP + TRAJ if (x := getattr(self, n)) is not None}
        return replace(self, **found, streams={n: f(n, x) for n, x in self.streams.items()})


def _renumber(keep: Tensor) -> Tensor:
    """Return old index → new index for a mask of what stays."""
    return keep.cumsum(0) - 1


def pack(trajectories: Sequence[Trajectory], *, discount: float) -> Batch:
    """Flatten trajectories into a Batch; broken episodes (status error) are left out and counted in `failed`.

    A segment begins at the first step of a trajectory and wherever a step says `new_segment`. `discount` is that of `step_return`.
    Raises DataError when nothing is left, or when a step holds no token ids, an empty context, or log-probabilities that do not fit.
    """
    kept = [t for t in trajectories if not t.failed]
    steps = [(t, i, s) for t in kept for i, s in enumerate(t.steps)]
    for t, i, s in steps:
        _check_step(t, i, s)
    failed = len(trajectories) - len(kept)
    if not any(s.completion.tokens for _, _, s in steps):
        raise DataError(
            f"nothing to train on: {len(trajectories)} trajectories, {failed} of them broken (status error), {len(steps)} steps, no sampled token. "
            f"First reasons: {[t.error for t in trajectories if t.failed][:3]}"
        )
    step_traj = np.repeat(np.arange(len(kept)), [len(t.steps) for t in kept])
    reward = np.array([s.reward for _, _, s in steps], dtype=np.float64)
    state_ids: dict[tuple[str, str], int] = {}
    group_ids: dict[str, int] = {}
    return Batch(
        **_token_columns(steps),
        step_traj=_ids(step_traj),
        step_index=_ids([i for _, i, _ in steps]),
        step_reward=_floats(reward),
        step_penalty=_floats([s.penalty for _, _, s in steps]),
        step_return=_floats(discounted_returns(reward, step_traj, discount)),
        step_state=_ids([state_ids.setdefault((t.group, s.state), len(state_ids)) for t, _, s in steps]),
        step_valid=_flags([s.valid for _, _, s in steps]),
        traj_group=_ids([group_ids.setdefault(t.group, len(group_ids)) for t in kept]),
        outcome=_floats([t.outcome for t in kept]),
        success=_flags([t.success for t in kept]),
        truncated=_flags([t.status is Status.TRUNCATED for t in kept]),
        length=_ids([len(t.steps) for t in kept]),
        state_text=[text for _, text in state_ids],
        failed=failed,
    )


def _token_columns(steps: Sequence[tuple[Trajectory, int, Step]]) -> dict[str, Any]:
    """Return the [N] columns: each step is a run of read tokens, then a run of written ones."""
    done = [s.completion for _, _, s in steps]
    n_read = np.array([len(s.prompt) for _, _, s in steps])
    n_written = np.array([len(c.tokens or ()) for c in done])
    n_both = n_read + n_written
    ids = chain.from_iterable(x for _, _, s in steps for x in (s.prompt, s.completion.tokens or ()))
    token = np.fromiter(ids, dtype=np.int64, count=int(n_both.sum()))
    sampled = np.repeat(np.tile([False, True], len(steps)), np.stack([n_read, n_written], 1).ravel())
    begins = np.array([s.new_segment or i == 0 for _, i, s in steps])
    first = (np.cumsum(n_both) - n_both)[begins]  # index of the first token of each segment
    segment = np.repeat(np.cumsum(begins) - 1, n_both)
    version = np.full(len(token), -1, dtype=np.int64)
    version[sampled] = [v for c, n in zip(done, n_written, strict=True) for v in (c.version if isinstance(c.version, list) else [c.version] * n)]
    logp = None
    if all(c.logprobs is not None for c in done):
        logp = np.zeros(len(token), dtype=np.float32)
        logp[sampled] = [x for c in done for x in c.logprobs or ()]
    return {
        "token": torch.from_numpy(token),
        "position": _ids(np.arange(len(token)) - first[segment]),
        "segment": _ids(segment),
        "sampled": torch.from_numpy(sampled),
        "logp_old": None if logp is None else torch.from_numpy(logp),
        "version": torch.from_numpy(version),
        "step": _ids(np.repeat(np.arange(len(steps)), n_both)),
    }


def _check_step(trajectory: Trajectory, index: int, step: Step) -> None:
    """Raise DataError when a step cannot be trained on."""
    c, where = step.completion, f"task {trajectory.task.id!r}, step {index}"
    if c.tokens is None:
        raise DataError(f"{where}: the completion has text but no token ids (a text-only policy); encode it with the renderer before packing")
    if (step.new_segment or index == 0) and not step.prompt:
        raise DataError(f"{where}: a segment begins with an empty prompt; a model needs at least one token to read before it writes")
    if isinstance(c.version, list) and len(c.version) != len(c.tokens):
        raise DataError(f"{where}: {len(c.version)} versions for {len(c.tokens)} tokens")
    if c.logprobs is None:
        return
    if len(c.logprobs) != len(c.tokens):
        raise DataError(f"{where}: {len(c.logprobs)} log-probabilities for {len(c.tokens)} tokens")
    if not np.isfinite(c.logprobs).all():
        raise DataError(f"{where}: the sampler gave a log-probability that is not finite: {c.logprobs}")


def _ids(x: Sequence[int] | np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(x, dtype=np.int64))


def _floats(x: Sequence[float] | np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(x, dtype=np.float32))


def _flags(x: Sequence[bool]) -> Tensor:
    return torch.from_numpy(np.asarray(x, dtype=bool))
