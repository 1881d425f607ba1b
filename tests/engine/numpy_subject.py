"""The NumPy subject under its former name; it stands in `support.numpy_subject`."""

from support.numpy_subject import WILD, NumpyFrame, NumpySubject, elementwise, hashed, ideally

__all__ = ["WILD", "NumpyFrame", "NumpySubject", "elementwise", "hashed", "ideally"]
