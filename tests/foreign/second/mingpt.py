"""minGPT since June 2022: GPT-2's names, always biased but for the head, tanh GELU, the causal mask in the file."""

import math

import torch
from torch import Tensor, nn

from . import scramble


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.register_buffer("bias", torch.tril(torch.ones(context, context)).reshape(1, 1, context, context))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        size = width // self.heads
        queries, keys, values = torch.tensor_split(self.c_attn(x), 3, dim=2)
        visible = self.bias[0, 0, :length, :length] == 1
        mixed = torch.zeros_like(x)
        for head in range(self.heads):
            own = slice(head * size, (head + 1) * size)
            scores = torch.einsum("bqe,bke->bqk", queries[:, :, own], keys[:, :, own]) / math.sqrt(size)
            pattern = scores.masked_fill(~visible, -math.inf).softmax(dim=2)
            mixed[:, :, own] = torch.einsum("bqk,bke->bqe", pattern, values[:, :, own])
        return self.c_proj(mixed)


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.c_fc(x)
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return self.c_proj(x * (1 + torch.tanh(inner)) / 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, context)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)


class MinGPT(nn.Module):
    """Its file is the bare state dict."""

    def __init__(
        self, vocabulary: int = 11, context: int = 12, width: int = 16, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(vocabulary, width)
        self.transformer.wpe = nn.Embedding(context, width)
        self.transformer.h = nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.transformer.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[: tokens.shape[1]]
        for block in self.transformer.h:
            x = x + block.attn(block.ln_1(x))
            x = x + block.mlp(block.ln_2(x))
        return self.lm_head(self.transformer.ln_f(x))


def model(seed: int = 0, **options: int) -> MinGPT:
    return scramble(MinGPT(**options), seed)
