"""Optimizers, plain steps and gradient clipping for sparse parameters."""
