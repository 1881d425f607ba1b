"""Passes over long vectors that read each entry once: by kernels of our own on a GPU, piece by piece elsewhere.

A random vector is no memory but a rule (`Drawn`), so that it costs nothing to draw it wherever it is used.
"""

from __future__ import annotations

from gradproof.frameworks.torch.passes.drawn import Drawn
from gradproof.frameworks.torch.passes.passes import apart, beside, change, displaced, enlarged, joined, outside

__all__ = ["Drawn", "apart", "beside", "change", "displaced", "enlarged", "joined", "outside"]
