"""Pieces of long vectors, and how scalars are read from a device.

On a CPU a vector is worked on in pieces that fit its caches. On a device every operation on a piece is a kernel launch,
and every scalar that is read makes the host wait. There pieces are large, and scalars are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gradproof.engine.subject import Array

CACHED = 1 << 16  # entries: 512 KiB a vector, so that a few of them fit into a core's second-level cache
LAUNCHED = 1 << 24  # entries: 128 MiB a vector, of which two samples take about ten; launches take under 1 %


def piece_of(vector: Array, samples: int = 2) -> int:
    """Return the number of entries to work on at once, by the device that a vector is on.

    The slopes of many samples take more vectors of a piece, so that pieces on a device are shorter.
    """
    return CACHED if is_on_cpu(vector) else 2 * LAUNCHED // max(2, samples)


def is_on_cpu(vector: Array) -> bool:
    """Return True if a vector is in the processor's memory: its device, or the type of its device, is "cpu"."""
    return bool(getattr(vector.device, "type", vector.device) == "cpu")


def on_host(vector: Array) -> Array:
    """Return a short vector in the processor's memory: one transfer in the place of a launch for every operation."""
    return vector if is_on_cpu(vector) else vector.cpu()


def slices(low: int, high: int, piece: int = CACHED) -> Iterator[slice]:
    """Cut a range into slices of at most `piece` entries."""
    return (slice(start, min(start + piece, high)) for start in range(low, high, piece))


def mapped(xp: Array, compute: Callable[..., Array], *vectors: Array) -> Array:
    """Return what `compute` makes of vectors of one length, entry by entry, without temporary vectors as long."""
    whole, piece = vectors[0].shape[0], piece_of(vectors[0])
    if whole <= piece:
        return compute(*vectors)
    result = xp.zeros_like(vectors[0])
    for each in slices(0, whole, piece):
        result[each] = compute(*(vector[each] for vector in vectors))
    return result


def columns(xp: Array, rows: Iterable[Sequence[Array]]) -> list[list[float]]:
    """Return the 0-d arrays of a table as floats, column by column; read from a device in one transfer."""
    table = list(zip(*rows, strict=True))
    if is_on_cpu(table[0][0]):
        return [list(map(float, column)) for column in table]
    numbers: list[list[float]] = xp.stack([xp.stack(column) for column in table]).tolist()
    return numbers


def extremes(xp: Array, vector: Array) -> tuple[Array, Array]:
    """Return the least and the greatest entry as 0-d arrays, in one pass where the array library can."""
    return xp.aminmax(vector) if "aminmax" in vars(xp) else (vector.min(), vector.max())
