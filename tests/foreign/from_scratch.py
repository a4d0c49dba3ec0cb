"""The model of "LLMs from scratch": separate queries, keys and values, norms called scale and shift, tanh GELU."""

import torch
from torch import Tensor, nn

from tests.foreign import scramble


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.scale * centred / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) + self.shift


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, context: int, qkv_bias: bool) -> None:
        super().__init__()
        self.W_query = nn.Linear(width, width, bias=qkv_bias)
        self.W_key = nn.Linear(width, width, bias=qkv_bias)
        self.W_value = nn.Linear(width, width, bias=qkv_bias)
        self.out_proj = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("mask", torch.triu(torch.ones(context, context), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            f(x).view(batch, length, self.heads, -1).transpose(1, 2) for f in (self.W_query, self.W_key, self.W_value)
        )
        scores = (q @ k.transpose(2, 3)).masked_fill(self.mask.bool()[:length, :length], -torch.inf)
        mixed = torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1) @ v
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


class Feed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), Gelu(), nn.Linear(4 * width, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, qkv_bias: bool) -> None:
        super().__init__()
        self.att = Attention(width, heads, context, qkv_bias)
        self.ff = Feed(width)
        self.norm1, self.norm2 = Norm(width), Norm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.att(self.norm1(x))
        return x + self.ff.layers(self.norm2(x))


class GPTModel(nn.Module):
    def __init__(self, qkv_bias: bool = False, layers: int = 2) -> None:
        super().__init__()
        vocabulary, context, width, heads = 11, 12, 16, 4
        self.tok_emb, self.pos_emb = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.trf_blocks = nn.Sequential(*[Block(width, heads, context, qkv_bias) for _ in range(layers)])
        self.final_norm = Norm(width)
        self.out_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_emb(tokens) + self.pos_emb(torch.arange(tokens.shape[1]))
        return self.out_head(self.final_norm(self.trf_blocks(x)))


def model(seed: int = 0, **options: bool) -> nn.Module:
    return scramble(GPTModel(**options), seed)
