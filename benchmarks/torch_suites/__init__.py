"""Test files over the databases that torch's wheel brings along, for `benchmarks.torch_tests`."""
