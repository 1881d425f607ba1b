"""Differentiable operations on sparse tensors: conversions, products, sums along rows and columns, softmax."""
