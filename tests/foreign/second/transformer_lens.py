"""A model laid out as TransformerLens does: heads are a dimension of their own, matrices are applied as x @ W."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import scramble

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape))


class Holder(nn.Module):
    """Parameters by name and nothing else."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, parameter(*shape))


class Norm(nn.Module):
    """Normalises, then applies gain and bias if it has any."""

    def __init__(self, width: int, learned: bool, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.w, self.b = (parameter(width), parameter(width)) if learned else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(2, keepdim=True)
        x = centred / torch.sqrt((centred**2).mean(2, keepdim=True) + self.eps)
        return x if self.w is None else x * self.w + self.b


class Attention(Holder):
    def __init__(self, width: int, heads: int, size: int, context: int, divisor: float) -> None:
        into, back = (heads, width, size), (heads, size, width)
        super().__init__(
            W_Q=into, W_K=into, W_V=into, W_O=back, b_Q=into[::2], b_K=into[::2], b_V=into[::2], b_O=(width,)
        )
        self.register_buffer("mask", torch.ones(context, context).tril().bool())
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))
        self.divisor = divisor

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        total = self.b_O
        for head in range(self.W_Q.shape[0]):
            query = x @ self.W_Q[head] + self.b_Q[head]
            key = x @ self.W_K[head] + self.b_K[head]
            value = x @ self.W_V[head] + self.b_V[head]
            scores = torch.where(self.mask[:length, :length], query @ key.mT / self.divisor, self.IGNORE)
            total = total + scores.softmax(2) @ value @ self.W_O[head]
        return total


class Block(nn.Module):
    def __init__(self, attn: Attention, mlp: Holder | None, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.ln1, self.attn = norm(), attn
        if mlp is not None:
            self.ln2, self.mlp = norm(), mlp


class LensModel(nn.Module):
    """`norm`: "LN" (learned), "LNPre" (folded into what follows) or None. `attn_scale`: what scores are divided by."""

    def __init__(
        self,
        vocabulary: int = 11,
        context: int = 12,
        width: int = 16,
        heads: int = 4,
        layers: int = 2,
        d_head: int | None = None,
        d_mlp: int | None = None,
        norm: str | None = "LN",
        attn_only: bool = False,
        activation: str = "gelu_new",
        attn_scale: float | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if norm not in ("LN", "LNPre", None):
            raise ValueError(norm)
        size, f = d_head or width // heads, d_mlp or 4 * width
        divisor = size**0.5 if attn_scale is None else attn_scale
        make_norm = nn.Identity if norm is None else partial(Norm, width, norm == "LN", eps)
        self.activation = ACTIVATIONS[activation]
        self.embed = Holder(W_E=(vocabulary, width))
        self.pos_embed = Holder(W_pos=(context, width))
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            mlp = None if attn_only else Holder(W_in=(width, f), b_in=(f,), W_out=(f, width), b_out=(width,))
            self.blocks.append(Block(Attention(width, heads, size, context, divisor), mlp, make_norm))
        self.ln_final = make_norm()
        self.unembed = Holder(W_U=(width, vocabulary), b_U=(vocabulary,))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed.W_E[tokens] + self.pos_embed.W_pos[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block.attn(block.ln1(x))
            if hasattr(block, "mlp"):
                hidden = self.activation(block.ln2(x) @ block.mlp.W_in + block.mlp.b_in)
                x = x + hidden @ block.mlp.W_out + block.mlp.b_out
        return self.ln_final(x) @ self.unembed.W_U + self.unembed.b_U


def model(seed: int = 0, **options: int | float | bool | str | None) -> LensModel:
    return scramble(LensModel(**options), seed)
