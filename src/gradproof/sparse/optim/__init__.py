"""Optimizers, gradient steps and gradient clipping for sparse parameters."""
