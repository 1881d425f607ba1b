"""Rendering: reports as text. Nothing here computes, and nothing here knows a tensor."""
