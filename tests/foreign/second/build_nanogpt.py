"""build-nanogpt: nanoGPT's names, always biased, tied, tanh GELU; its file carries its config as an object."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import scramble


@dataclass
class GPTConfig:
    """Pickled by reference, as in the project's own files: safe loading refuses it."""

    block_size: int = 12
    vocab_size: int = 11
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 16


class Attention(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.heads = config.n_head

    def forward(self, x: Tensor) -> Tensor:
        stacked = self.c_attn(x).unflatten(2, (3, self.heads, -1))  # [batch, position, q or k or v, head, size]
        mixed = []
        for head in range(self.heads):
            query, key, value = stacked[:, :, :, head].unbind(2)
            mixed.append(functional.scaled_dot_product_attention(query, key, value, is_causal=True))
        return self.c_proj(torch.cat(mixed, 2))


class MLP(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)


class BuildNanoGPT(nn.Module):
    def __init__(
        self, vocabulary: int = 11, context: int = 12, width: int = 16, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.config = GPTConfig(context, vocabulary, layers, heads, width)
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(vocabulary, width)
        self.transformer.wpe = nn.Embedding(context, width)
        self.transformer.h = nn.ModuleList(Block(self.config) for _ in range(layers))
        self.transformer.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[: tokens.shape[1]]
        for block in self.transformer.h:
            x = x + block.attn(block.ln_1(x))
            x = x + block.mlp(block.ln_2(x))
        return self.lm_head(self.transformer.ln_f(x))


def model(seed: int = 0, **options: int) -> BuildNanoGPT:
    return scramble(BuildNanoGPT(**options), seed)


def as_checkpoint(model: BuildNanoGPT) -> dict[str, Any]:
    return {"model": model.state_dict(), "config": model.config, "step": 5000, "val_loss": 3.3}
