"""Tensors that only oneDNN can read are held as strided ones."""

from __future__ import annotations

import pytest
import torch

from gradproof import check, gradcheck
from support.findings import blamed
from support.functions import doubled


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
class TestTensorsThatOnlyOneDnnCanRead:
    """They are held as strided tensors, and given to the function as they came."""

    @staticmethod
    def opaque():
        return torch.tensor([0.5, -1.5, 2.0]).to_mkldnn().requires_grad_()

    @pytest.mark.parametrize("ask", [torch.autograd.gradcheck, gradcheck], ids=["torch", "gradproof"])
    @pytest.mark.filterwarnings("ignore:Input #0 requires gradient and is not a double")
    def test_a_right_gradient_passes(self, ask):
        options = {"eps": 1e-3, "atol": 1e-2, "check_undefined_grad": False}

        assert ask(lambda x: x.to_dense() ** 2, (self.opaque(),), **options)

    def test_the_function_gets_its_own_kind_in_any_nest(self):
        seen = set()

        def function(nest):
            seen.add(nest["x"].layout)
            return nest["x"].to_dense() * nest["factor"]

        assert check(function, ({"x": self.opaque(), "factor": 2.0},), seed=0).passed
        assert seen == {torch._mkldnn}

    def test_a_wrong_gradient_is_found(self):
        x = self.opaque()
        report = check(lambda x: doubled(x.to_dense()), x, seed=0)

        assert blamed(report) == {"x"}
        assert x.grad is None
