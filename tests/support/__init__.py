"""Points, functions and sparse tensors that tests of several rooms share."""
