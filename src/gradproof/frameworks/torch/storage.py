"""The storage of tensors: the strided components that a tensor consists of, copies, and comparisons.

A strided tensor has one component, itself. A sparse tensor has its indices and its values, a masked one its data and
its mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.masked import MaskedTensor, masked_tensor

from gradproof.engine import pieces
from gradproof.frameworks.torch.exclusion import without_warnings
from gradproof.sparse.pattern.grid import piece_of
from gradproof.sparse.pattern.layouts import index_tensors, stored_values, with_values
from gradproof.sparse.pattern.layouts import is_sparse as is_sparse

SHARED_FROM = 1 << 12  # entries: from here on, copies share the indices of a sparse tensor
SURROUNDINGS = 1 << 16  # entries of a view's base that are copied along with it


def is_strided(tensor: Tensor) -> bool:
    """Return True for a strided tensor that is not masked."""
    return tensor.layout == torch.strided and not isinstance(tensor, MaskedTensor)


def can_hold_other_memory(tensor: Tensor) -> bool:
    """Return True if assigning to `tensor.data` replaces its memory; torch ignores it for compressed layouts."""
    return tensor.layout in (torch.strided, torch.sparse_coo)


def data_and_mask(tensor: MaskedTensor) -> tuple[Tensor, Tensor]:
    """Return the data and the mask of a masked tensor."""
    return tensor.get_data().detach(), tensor.get_mask()  # type: ignore[no-untyped-call]  # torch's own


def masked(data: Tensor, mask: Tensor) -> Tensor:
    """Make a masked tensor, without torch's warning that they are a prototype."""
    with without_warnings(UserWarning):
        return masked_tensor(data, mask)


def components(tensor: Tensor) -> list[Tensor]:
    """Return the strided components of a tensor."""
    if isinstance(tensor, MaskedTensor):
        return [component for half in data_and_mask(tensor) for component in components(half)]
    if tensor.layout == torch.strided:
        return [tensor.detach()]
    return [*index_tensors(tensor), stored_values(tensor)]


def recomposed(tensor: Tensor, made_of: Sequence[Tensor]) -> Tensor:
    """Make a tensor of the same layout from other components."""
    if isinstance(tensor, MaskedTensor):
        data, mask = data_and_mask(tensor)
        half = len(made_of) // 2
        return masked(recomposed(data, made_of[:half]), recomposed(mask, made_of[half:]))
    if tensor.layout == torch.strided:
        return made_of[0]
    return with_values(tensor, made_of[-1], tuple(made_of[:-1]))


def memory_of(tensors: Sequence[Tensor]) -> set[int]:
    """Return the addresses of the storages that hold the values of some tensors."""
    return {
        component.untyped_storage().data_ptr()
        for tensor in tensors
        for component in ([tensor] if is_strided(tensor) else components(tensor)[-1:])
        if component.numel()
    }


def replica(tensor: Tensor) -> Tensor:
    """Copy a tensor into memory of its own, with the same strides, overlapping ones too.

    A view keeps what surrounds it, if that is not much, for functions that look beyond the view.
    """
    tensor = tensor.detach()
    if not is_strided(tensor):
        return recomposed(tensor, [component.clone() for component in components(tensor)])
    if fills_its_storage(tensor):
        return tensor.clone()
    surroundings = tensor.untyped_storage().nbytes() // tensor.element_size()
    if surroundings <= max(SURROUNDINGS, 2 * tensor.numel()):
        memory = tensor.as_strided((surroundings,), (1,), 0).clone()
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    extent = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((extent,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def refilled(tensor: Tensor) -> Tensor:
    """Copy a tensor, but share the indices of a large sparse one."""
    if is_sparse(tensor) and stored_values(tensor).numel() >= SHARED_FROM:
        return with_values(tensor.detach(), stored_values(tensor).clone())
    return replica(tensor)


def is_freed(tensor: Tensor) -> bool:
    """Return True if a strided tensor's memory was given back, as some invertible layers do to what they can restore.

    >>> tensor = torch.ones(2)
    >>> _ = tensor.untyped_storage().resize_(0)
    >>> is_freed(tensor), is_freed(torch.ones(2)), is_freed(torch.ones(0))
    (True, False, False)
    """
    return tensor.layout == torch.strided and tensor.numel() > 0 and not tensor.untyped_storage().nbytes()


def same_numbers(before: Tensor, after: Tensor) -> bool:
    """Return True if two tensors have the same shape, dtype, layout and values; NaN equals NaN."""
    if not _are_comparable(before, after):
        return False
    if not is_strided(before):
        return all(same_numbers(one, other) for one, other in zip(components(before), components(after), strict=True))
    if before.dtype.is_complex:  # torch.equal compares only some of these
        before, after = as_real(before.detach()), as_real(after.detach())
    return torch.equal(before, after) or bool(((before == after) | (before.isnan() & after.isnan())).all())


def same_in_each(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[bool]:
    """Return for each pair of tensors whether they have the same numbers; a device is waited for once."""
    pairs = list(zip(before, after, strict=True))
    held = [pair for pair in pairs if not pieces.is_on_cpu(pair[0]) and is_strided(pair[0]) and _are_comparable(*pair)]
    if len(held) < 2:
        return [same_numbers(*pair) for pair in pairs]
    device = held[0][0].device
    equal = torch.stack([(one == other).all().to(device) for one, other in held]).tolist()
    alike = {id(pair) for pair, same in zip(held, equal, strict=True) if same}
    return [id(pair) in alike or same_numbers(*pair) for pair in pairs]


def _are_comparable(before: Tensor, after: Tensor) -> bool:
    if is_freed(before) or is_freed(after):
        return False
    return before.shape == after.shape and before.dtype == after.dtype and before.layout == after.layout


class Fingerprint:
    """A record of a tensor to compare it with later: copies, or two checksums of large components in main memory.

    On a device a copy takes one pass, and a checksum several.

    >>> tensor = torch.zeros(100_000)
    >>> seen = Fingerprint(tensor)
    >>> seen.is_of(tensor), seen.is_of(tensor.index_fill(0, torch.tensor(7), 1e-30))
    (True, False)
    """

    def __init__(self, tensor: Tensor) -> None:
        self._seen = [_essence(component) for component in components(tensor)]

    def is_of(self, tensor: Tensor) -> bool:
        """Return True if a tensor has not changed since."""
        parts = components(tensor)
        if any(map(is_freed, parts)):
            return False
        return len(parts) == len(self._seen) and all(map(_is_unchanged, self._seen, parts))


def _essence(component: Tensor) -> Tensor | tuple[torch.Size, int, int]:
    if component.numel() < SHARED_FROM or not pieces.is_on_cpu(component):
        return replica(component)
    whole = bits(component)
    plain = weighted = 0
    length = piece_of(len(whole))
    for start in range(0, len(whole), length):
        piece = whole[start : start + length].long()
        plain += int(piece.sum())
        weighted += int((piece * torch.arange(start + 1, start + 1 + len(piece), device=piece.device)).sum())
    return component.shape, plain, weighted


def _is_unchanged(before: Tensor | tuple[torch.Size, int, int], component: Tensor) -> bool:
    if isinstance(before, Tensor):
        return same_numbers(before, component)
    return component.numel() >= SHARED_FROM and _essence(component) == before


def bits(component: Tensor) -> Tensor:
    """Return the bits of all values as a vector of integers."""
    flat = as_real(component).reshape(-1)
    return flat.view(_WHOLE[flat.element_size()]) if flat.is_floating_point() else flat


_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fills_its_storage(tensor: Tensor) -> bool:
    """Return True if the storage holds the tensor's entries in order, and nothing else."""
    return (
        not is_strided(tensor)
        or not tensor.numel()
        or (tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())
    )


def overlaps(tensor: Tensor) -> bool:
    """Return True if entries of a strided tensor may share memory.

    >>> overlaps(torch.ones(1).expand(3)), overlaps(torch.ones(4).unfold(0, 2, 1)), overlaps(torch.ones(3, 4).T)
    (True, True, False)
    """
    reach = 0
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1 and stride <= reach:
            return True
        reach += stride * (length - 1)
    return False


def as_real(tensor: Tensor) -> Tensor:
    """Return a view with real entries: a complex tensor gains a last dimension of two."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def numbers(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as a real vector; of a sparse tensor, the stored values."""
    values = components(data_and_mask(tensor)[0] if isinstance(tensor, MaskedTensor) else tensor)[-1]
    return as_real(values).reshape(-1).to(torch.float64)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the real and imaginary parts of a dtype."""
    return dtype.to_real() if dtype.is_complex else dtype
