"""Sparse tensors that are differentiated, masked and converted, in memory proportional to their stored entries."""

from gradproof.sparse.conversion import Form, convert, mask, repack, unpack

__all__ = ["Form", "convert", "mask", "repack", "unpack"]
