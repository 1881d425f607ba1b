"""The derivative of a function's forward, step by step, to find the step that a wrong backward gets wrong."""
