"""PyTorch functions as subjects, and drop-ins for torch's own checks."""
