"""A model whose weights lie as TransformerLens lays them: heads in a dimension of their own, matrices that map from left."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.foreign import scramble

ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


def _empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))


class Norm(nn.Module):
    def __init__(self, width: int, learned: bool, eps: float) -> None:
        super().__init__()
        self.eps, self.learned = eps, learned
        if learned:
            self.w, self.b = _empty(width), _empty(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()
        return x * self.w + self.b if self.learned else x


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, size: int, context: int, divisor: float) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (_empty(heads, width, size) for _ in range(3))
        self.W_O = _empty(heads, size, width)
        self.b_Q, self.b_K, self.b_V = (_empty(heads, size) for _ in range(3))
        self.b_O = _empty(width)
        self.divisor = divisor
        self.register_buffer("mask", torch.tril(torch.ones(context, context, dtype=torch.bool)))
        self.register_buffer("IGNORE", torch.tensor(float("-inf")))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q = torch.einsum("bpd,hde->bphe", x, self.W_Q) + self.b_Q
        k = torch.einsum("bpd,hde->bphe", x, self.W_K) + self.b_K
        v = torch.einsum("bpd,hde->bphe", x, self.W_V) + self.b_V
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / self.divisor
        pattern = torch.where(self.mask[:length, :length], scores, self.IGNORE).softmax(-1)
        return torch.einsum("bhqk,bkhe,hed->bqd", pattern, v, self.W_O) + self.b_O


class MLP(nn.Module):
    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.W_in, self.b_in, self.W_out, self.b_out = (
            _empty(width, 4 * width),
            _empty(4 * width),
            _empty(4 * width, width),
            _empty(width),
        )
        self.act = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x @ self.W_in + self.b_in) @ self.W_out + self.b_out


class Table(nn.Module):
    def __init__(self, name: str, *shape: int) -> None:
        super().__init__()
        setattr(self, name, _empty(*shape))


class Lens(nn.Module):
    def __init__(
        self,
        norm: str | None = "LN",
        attn_only: bool = False,
        activation: str = "gelu_new",
        attn_scale: float | None = None,
        d_head: int = 4,
        heads: int = 4,
        layers: int = 2,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        vocabulary, context, width = 11, 12, 16
        make = (lambda: Norm(width, norm == "LN", eps)) if norm else nn.Identity
        self.embed, self.pos_embed = Table("W_E", vocabulary, width), Table("W_pos", context, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            block = nn.ModuleDict({
                "ln1": make(), "attn": Attention(width, heads, d_head, context, attn_scale or d_head**0.5),
            })  # fmt: skip
            if not attn_only:
                block.update({"ln2": make(), "mlp": MLP(width, activation)})
            self.blocks.append(block)
        self.ln_final = make()
        self.unembed = Table("W_U", width, vocabulary)
        self.unembed.b_U = _empty(vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed.W_E[tokens] + self.pos_embed.W_pos[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block["attn"](block["ln1"](x))
            if "mlp" in block:
                x = x + block["mlp"](block["ln2"](x))
        return self.ln_final(x) @ self.unembed.W_U + self.unembed.b_U


def model(seed: int = 0, **options: object) -> nn.Module:
    return scramble(Lens(**options), seed)
