"""Inspect a function from outside: its closure, its autograd graph, and the parts that it calls."""
