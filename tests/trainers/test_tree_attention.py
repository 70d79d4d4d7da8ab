"""Attention over trees against the formula with a dense mask: output and gradient on a CPU, mask and output of the GPU's way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from agentgym.errors import PolicyError
from agentgym.trainers import prefix, tree_attention
from agentgym.trainers.prefix import Stem, Tree, trees
from agentgym.trainers.tree_attention import _buckets, _Cascade, _Plan, attend, block_mask, flex


def tree(seed: int, groups: int = 3, longest: int = 40) -> Tree:
    """Return a tree of groups behind prompts, with stems inside of them."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(groups):
        prompt = rng.integers(0, 50, int(rng.integers(1, longest))).tolist()
        for _ in range(4):
            inner = prompt + rng.integers(0, 50, int(rng.integers(1, longest))).tolist()
            out += [inner + rng.integers(0, 50, int(rng.integers(1, longest // 2))).tolist() for _ in range(int(rng.integers(1, 4)))]
    length = np.array([len(x) for x in out])
    with pytest.MonkeyPatch.context() as m:
        m.setattr(prefix, "_LEAST", 1)
        m.setattr(prefix, "_SHARE", 0.0)
        (found,), _ = trees(np.concatenate(out), length.cumsum() - length, length, 10**6)
    return found


def tensors(t: Tree, heads: int, kv_heads: int, dim: int = 8) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(t.cells, h, dim, generator=g).requires_grad_() for h in (heads, kv_heads, kv_heads)]


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, t: Tree, scale: float) -> torch.Tensor:
    """Return [C, H, D] by the formula."""
    i = torch.arange(t.cells)
    sees = (i <= i[:, None]) & (i[:, None] < t.end)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    score = torch.einsum("qhd,khd->hqk", q, k) * scale
    return torch.einsum("hqk,khd->qhd", score.masked_fill(~sees, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_cascade_is_the_formula(heads, kv_heads, seed):
    t = tree(seed)
    assert max(sum(s.start < u.start < s.end for s in t.stems) for u in t.stems) >= 1, "stems are nested here"
    found, expected = tensors(t, heads, kv_heads), tensors(t, heads, kv_heads)
    a = _Cascade.apply(*found, _Plan(_buckets(t.branches), t.stems, None), 0.3)
    b = dense(*expected, t, 0.3)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    weight = torch.randn(a.shape, generator=torch.Generator().manual_seed(1))
    (a * weight).sum().backward()
    (b * weight).sum().backward()
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.grad, y.grad, atol=2e-5, rtol=1e-4)


def test_scores_of_any_size_stay_finite():
    """Parts are joined by log-sum-exps: no exponential of a score itself is ever taken."""
    t = tree(2)
    q, k, v = tensors(t, 2, 2)
    out = _Cascade.apply(q * 300, k, v, _Plan(_buckets(t.branches), t.stems, None), 1.0)
    torch.testing.assert_close(out, dense(q * 300, k, v, t, 1.0), atol=1e-4, rtol=1e-4)


def test_buckets_pad_little_and_take_views_where_cells_lie_side_by_side():
    (one,) = _buckets(torch.tensor([[10, 5], [0, 5], [5, 5]]))
    assert one.run == 0 and one.real is None and one.take.shape == (3, 5)
    short, long = _buckets(torch.tensor([[0, 2], [2, 4], [6, 40]]))
    assert short.run is None and short.take.tolist() == [[0, 1, 1, 1], [2, 3, 4, 5]] and short.real.tolist() == [0, 1, 4, 5, 6, 7]
    assert long.run == 6 and long.take.shape == (1, 40)


def see(end):
    return lambda b, h, q, k: (k <= q) & (q < end[k])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gpus_block_mask_is_the_trees(seed):
    t = tree(seed, longest=300)
    n, found = t.cells, block_mask(t.end)
    expected = create_block_mask(see(t.end), None, None, n, n, device="cpu", BLOCK_SIZE=128)
    assert n > 1000 and torch.equal(found.to_dense(), expected.to_dense())
    assert int(found.full_kv_num_blocks.sum()) == int(expected.full_kv_num_blocks.sum()) > 0


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_gpus_way_gives_the_cascades_output():
    """FlexAttention's own steps without compiling, which a CPU can run forwards."""
    t = tree(3, longest=120)
    with torch.no_grad():
        q, k, v = (x.detach() for x in tensors(t, 4, 2))
        expected = _Cascade.apply(q, k, v, _Plan(_buckets(t.branches), t.stems, None), 0.3)
        packed = [x.transpose(0, 1)[None] for x in (q, k, v)]
        found = attend(torch.nn.Identity(), *packed, None, tree=_Plan((), (), block_mask(t.end)), scaling=0.3)[0][0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: FlexAttention is compiled there and has a backward pass")
def test_on_a_gpu_gradients_are_the_formulas():
    t = tree(4, longest=120)
    found = [x.detach().cuda().requires_grad_() for x in tensors(t, 4, 2, 32)]
    expected = tensors(t, 4, 2, 32)
    out = flex(*(x.transpose(0, 1)[None] for x in found), block_mask(t.end.cuda()), 0.3)
    weight = torch.randn(t.cells, 4, 32, generator=torch.Generator().manual_seed(1))
    (out[0].transpose(0, 1) * weight.cuda()).sum().backward()
    (dense(*expected, t, 0.3) * weight).sum().backward()
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.grad.cpu(), y.grad, atol=1e-3, rtol=1e-3)


def test_what_is_not_implemented_is_refused():
    t = tree(0)
    q, k, v = (x.transpose(0, 1)[None] for x in tensors(t, 2, 2))
    plan = _Plan(_buckets(t.branches), (Stem(0, 1, 2),), None)
    for odd in ({"softcap": 30.0}, {"sliding_window": 8}, {"dropout": 0.1}):
        with pytest.raises(PolicyError, match=rf"Identity uses {next(iter(odd))}; set update.shared_prefix=never"):
            attend(torch.nn.Identity(), q, k, v, None, tree=plan, **odd)
    assert tree_attention.NAME == "agentgym_tree"
