"""Compare two implementations of a function: a kernel and its reference."""
