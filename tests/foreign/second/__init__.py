"""Small models of other projects, written from the description of their files alone, to hold our converters against."""

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)
GAINS = ("weight", "scale", "w")  # names of a norm's gain; no other vector is called so


def scramble(module: Model, seed: int = 0) -> Model:
    """Leaves no parameter at a value that could be forgotten unnoticed: no zero bias, no gain of one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_gain = parameter.ndim == 1 and name.rsplit(".", 1)[-1] in GAINS
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * noise + (1.0 if is_gain else 0.0))
    return module.eval()
