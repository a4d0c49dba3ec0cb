"""GPTModel of "LLMs from scratch": queries, keys and values apart, norms of scale and shift, tanh GELU, untied."""

import torch
from torch import Tensor, nn

from . import scramble


class LayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, dim=2, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, context: int, qkv_bias: bool) -> None:
        super().__init__()
        self.W_query = nn.Linear(width, width, bias=qkv_bias)
        self.W_key = nn.Linear(width, width, bias=qkv_bias)
        self.W_value = nn.Linear(width, width, bias=qkv_bias)
        self.out_proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(context, context).triu(diagonal=1))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        hidden = self.mask[:length, :length] > 0
        mixed = []
        triples = zip(*(part(x).chunk(self.heads, 2) for part in (self.W_query, self.W_key, self.W_value)), strict=True)
        for query, key, value in triples:
            scores = (query @ key.mT).masked_fill(hidden, -torch.inf) * query.shape[2] ** -0.5
            mixed.append(scores.softmax(2) @ value)
        return self.out_proj(torch.cat(mixed, 2))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, qkv_bias: bool) -> None:
        super().__init__()
        self.att = Attention(width, heads, context, qkv_bias)
        self.ff = FeedForward(width)
        self.norm1 = LayerNorm(width)
        self.norm2 = LayerNorm(width)


class GPTModel(nn.Module):
    def __init__(
        self,
        vocabulary: int = 11,
        context: int = 12,
        width: int = 16,
        heads: int = 4,
        layers: int = 2,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(vocabulary, width)
        self.pos_emb = nn.Embedding(context, width)
        self.trf_blocks = nn.ModuleList(Block(width, heads, context, qkv_bias) for _ in range(layers))
        self.final_norm = LayerNorm(width)
        self.out_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_emb(tokens) + self.pos_emb.weight[: tokens.shape[1]]
        for block in self.trf_blocks:
            x = x + block.att(block.norm1(x))
            x = x + block.ff.layers(block.norm2(x))
        return self.out_head(self.final_norm(x))


def model(seed: int = 0, **options: int | bool) -> GPTModel:
    return scramble(GPTModel(**options), seed)
