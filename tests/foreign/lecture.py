"""The "let's build GPT" lecture's model: a module a head, ReLU, biases at the output projection and the head."""

import torch
from torch import Tensor, nn

from tests.foreign import scramble


class Head(nn.Module):
    def __init__(self, width: int, size: int, context: int, scale: float) -> None:
        super().__init__()
        self.key = nn.Linear(width, size, bias=False)
        self.query = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.scale = scale
        self.register_buffer("tril", torch.tril(torch.ones(context, context)))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        weights = self.query(x) @ self.key(x).transpose(1, 2) * self.scale
        weights = weights.masked_fill(self.tril[:length, :length] == 0, float("-inf")).softmax(-1)
        return weights @ self.value(x)


class MultiHead(nn.Module):
    def __init__(self, width: int, heads: int, context: int, scale: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // heads, context, scale) for _ in range(heads))
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, scale: float) -> None:
        super().__init__()
        self.sa = MultiHead(width, heads, context, scale)
        self.ffwd = FeedForward(width)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class Lecture(nn.Module):
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
        scale = (width if scale_by_width else width // heads) ** -0.5
        self.token_embedding_table = nn.Embedding(vocabulary, width)
        self.position_embedding_table = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, context, scale) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embedding_table(tokens) + self.position_embedding_table(torch.arange(tokens.shape[1]))
        return self.lm_head(self.ln_f(self.blocks(x)))


def model(seed: int = 0, **options: int | bool) -> nn.Module:
    return scramble(Lecture(**options), seed)
