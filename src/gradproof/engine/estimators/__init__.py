"""Slopes from values, each with an error bar."""
