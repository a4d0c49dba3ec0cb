"""Models of other projects, each written anew from the description of its files: witnesses, not importers."""

import torch
from torch import nn


def scramble(module: nn.Module, seed: int = 0) -> nn.Module:
    """Makes every parameter non-trivial, norms and biases too, so that a dropped one shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(dict(module.named_parameters()).items()):
            gain = parameter.ndim == 1 and name.endswith(("weight", "scale", ".w"))
            parameter.copy_(float(gain) + 0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()
