"""Layers with sparse weights, and their initialization."""
