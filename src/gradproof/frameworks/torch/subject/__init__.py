"""A PyTorch function at a point: its arguments, its coordinates, and how it is evaluated and differentiated."""
