"""The course's model as its file format describes it, written anew: one module a head, nothing fused, nothing shared.

Its only purpose is to load files of ours as the course's notebook would and to compute the logits its own way.
"""

import torch
from torch import Tensor, nn


class Head(nn.Module):
    def __init__(self, width: int, size: int, context: int) -> None:
        super().__init__()
        self.key = nn.Linear(width, size, bias=False)
        self.query = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(context, context)))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        scores = torch.einsum("bqd,bkd->bqk", self.query(x), self.key(x)) / self.key.out_features**0.5
        visible = self.tril[:length, :length].bool()
        return scores.where(visible, torch.tensor(-1e30)).softmax(2) @ self.value(x)


class Heads(nn.Module):
    def __init__(self, width: int, count: int, context: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // count, context) for _ in range(count))
        self.proj = nn.Linear(width, width)


class Feed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)


class Layer(nn.Module):
    def __init__(self, width: int, count: int, context: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Heads(width, count, context), Feed(width)


class CourseGPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tok = nn.Embedding(vocabulary, width)
        self.pos = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Layer(width, heads, context) for _ in range(layers))
        self.lnf = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        for layer in self.blocks:
            mixed = [head(layer.ln1(x)) for head in layer.attn.heads]
            x = x + layer.attn.proj(torch.cat(mixed, dim=-1))
            x = x + layer.mlp.proj(nn.functional.gelu(layer.mlp.fc(layer.ln2(x))))
        return self.head(self.lnf(x))


def course_model(seed: int = 0) -> CourseGPT:
    """A small one with every parameter non-trivial, norms and biases too."""
    model = CourseGPT(vocabulary=11, context=12, width=16, heads=4, layers=2)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "ln" in name and name.endswith("weight") else 0.0
            parameter.copy_(centre + 0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()
