"""Training steps: the parameters before and after a step, and the loss along it as a subject of the engine."""
