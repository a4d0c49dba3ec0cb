"""The model of the "let's build GPT" lecture: a module a head, ReLU, a bias at the output projection and at the head.

Attention is computed one position at a time over its own past, so no mask can be wrong.
"""

import torch
from torch import Tensor, nn

from . import scramble


class Head(nn.Module):
    def __init__(self, width: int, size: int, context: int, scale: float) -> None:
        super().__init__()
        self.key = nn.Linear(width, size, bias=False)
        self.query = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(context, context)))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        keys, queries, values = self.key(x), self.query(x), self.value(x)
        mixed = []
        for now in range(x.shape[1]):
            scores = (keys[:, : now + 1] * queries[:, now : now + 1]).sum(2) * self.scale
            mixed.append((scores.softmax(1).unsqueeze(2) * values[:, : now + 1]).sum(1))
        return torch.stack(mixed, 1)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, context: int, scale: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // heads, context, scale) for _ in range(heads))
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], 2))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, scale: float) -> None:
        super().__init__()
        self.sa = SelfAttention(width, heads, context, scale)
        self.ffwd = FeedForward(width)
        self.ln1 = nn.LayerNorm(width)
        self.ln2 = nn.LayerNorm(width)


class LectureGPT(nn.Module):
    """With `scale_by_width`, scores are scaled by d^-0.5 as in old copies of the file, else by dh^-0.5."""

    def __init__(
        self,
        vocabulary: int = 11,
        context: int = 12,
        width: int = 16,
        heads: int = 4,
        layers: int = 2,
        scale_by_width: bool = False,
    ) -> None:
        super().__init__()
        scale = float(width if scale_by_width else width // heads) ** -0.5
        self.token_embedding_table = nn.Embedding(vocabulary, width)
        self.position_embedding_table = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, context, scale) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embedding_table(tokens) + self.position_embedding_table.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block.sa(block.ln1(x))
            x = x + block.ffwd.net(block.ln2(x))
        return self.lm_head(self.ln_f(x))


def model(seed: int = 0, **options: int | bool) -> LectureGPT:
    return scramble(LectureGPT(**options), seed)
