"""The sparse layouts of torch, by the names that reports use."""

import torch

LAYOUTS = {
    "COO": torch.sparse_coo,
    "CSR": torch.sparse_csr,
    "CSC": torch.sparse_csc,
    "BSR": torch.sparse_bsr,
    "BSC": torch.sparse_bsc,
}
