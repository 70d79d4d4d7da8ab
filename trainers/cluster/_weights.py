"""A model on its way to other processes: its shape and what training never changes once, what training changes after every update."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._generator import places

Dismantled = tuple[bytes, list[np.ndarray]]


def pack(params: Sequence[Tensor]) -> np.ndarray:
    """Return parameters, wherever they are, behind each other in one array of bytes."""
    flat = np.empty(max((stop for _, _, stop in places(params)), default=0), dtype=np.uint8)
    for p, start, stop in places(params):
        torch.from_numpy(flat[start:stop]).view(p.dtype).view(p.shape).copy_(p.detach())
    return flat


def unpack(flat: np.ndarray, params: Sequence[Tensor]) -> None:
    """Copy what `pack` made into parameters of the same shapes."""
    whole = _tensor(flat)
    for p, start, stop in places(params):
        p.detach().copy_(whole[start:stop].view(p.dtype).view(p.shape))


def dismantle(thing: Any) -> Dismantled:
    """Return an object with tensors in it as (pickle, their bytes). Of what training changes only the shape is kept: `pack` has the rest."""
    out, arrays = io.BytesIO(), list[np.ndarray]()
    _Pickler(out, arrays).dump(thing)
    return out.getvalue(), arrays


def assemble(parts: Dismantled) -> Any:
    """Return the object again. Frozen parameters stay in the memory that they came in, which several processes may share: nobody may write them."""
    data, arrays = parts
    return _Unpickler(io.BytesIO(data), arrays).load()


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, arrays: list[np.ndarray]) -> None:
        super().__init__(out, protocol=5)
        self._arrays, self._known = arrays, dict[int, tuple[Tensor, Any]]()  # the tensor too: a number may be used again once it is gone

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return None
        if id(obj) not in self._known:
            is_param = isinstance(obj, nn.Parameter)
            number = None
            if not obj.requires_grad:
                number = len(self._arrays)
                self._arrays.append(obj.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
            self._known[id(obj)] = obj, (len(self._known), number, obj.dtype, tuple(obj.shape), is_param, obj.requires_grad)
        return self._known[id(obj)][1]


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(data)
        self._arrays, self._made = arrays, dict[int, Tensor]()

    def persistent_load(self, pid: Any) -> Tensor:
        key, number, dtype, shape, is_param, learns = pid
        if key not in self._made:
            if number is None:
                tensor = torch.empty(shape, dtype=dtype)
            else:
                tensor = _tensor(self._arrays[number]).view(dtype).view(shape)
                tensor = tensor if is_param else tensor.clone()  # a buffer may be written
            self._made[key] = nn.Parameter(tensor, requires_grad=learns) if is_param else tensor
        return self._made[key]


def _tensor(array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nobody may write it is known
        return torch.from_numpy(array)
