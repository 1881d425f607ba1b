"""Which entries of a derivative are wrong: bisection over coordinates and over outputs."""
