"""Three projects that name their weights as GPT-2 does and store them as Linear does: nanoGPT, minGPT, build-nanogpt."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.foreign import scramble


@dataclass
class GPTConfig:
    """What build-nanogpt leaves in its file as an object."""

    block_size: int = 12
    vocab_size: int = 11
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 16


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, context: int, bias: bool, buffers: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.heads = heads
        if buffers:
            self.register_buffer("bias", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x: Tensor) -> Tensor:
        _, length, width = x.shape
        size, outputs = width // self.heads, []
        q, k, v = self.c_attn(x)[..., :width], self.c_attn(x)[..., width : 2 * width], self.c_attn(x)[..., 2 * width :]
        future = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        for head in range(self.heads):
            part = slice(head * size, (head + 1) * size)
            scores = q[..., part] @ k[..., part].transpose(1, 2) / size**0.5
            outputs.append(scores.masked_fill(future, float("-inf")).softmax(-1) @ v[..., part])
        return self.c_proj(torch.cat(outputs, -1))


class MLP(nn.Module):
    def __init__(self, width: int, bias: bool, tanh: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.gelu = nn.GELU(approximate="tanh" if tanh else "none")
        self.c_proj = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, bias: bool, tanh: bool, buffers: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, context, bias, buffers)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = MLP(width, bias, tanh)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(
        self, bias: bool, tanh: bool, tied: bool, buffers: bool, layers: int = 2, width: int = 16, heads: int = 4
    ) -> None:
        super().__init__()
        vocabulary, context = 11, 12
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads, context, bias, tanh, buffers) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width, bias=bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


def nanogpt(seed: int = 0, bias: bool = True, tanh: bool = False, buffers: bool = False, **sizes: int) -> nn.Module:
    return scramble(GPT(bias, tanh, tied=True, buffers=buffers, **sizes), seed)


def mingpt(seed: int = 0) -> nn.Module:
    return scramble(GPT(bias=True, tanh=True, tied=False, buffers=True), seed)


def build_nanogpt(seed: int = 0) -> nn.Module:
    return scramble(GPT(bias=True, tanh=True, tied=True, buffers=False), seed)


def nanogpt_checkpoint(module: nn.Module, compiled: bool = False, bias: bool = True) -> dict[str, Any]:
    """What nanoGPT's training script saves."""
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 16, "block_size": 12, "vocab_size": 11}
    prefix = "_orig_mod." if compiled else ""
    return {
        "model": {prefix + key: value for key, value in module.state_dict().items()},
        "optimizer": torch.optim.AdamW(module.parameters()).state_dict(),
        "model_args": {**sizes, "bias": bias, "dropout": 0.0},
        "iter_num": 2000,
        "best_val_loss": torch.tensor(1.47),
        "config": {"dataset": "shakespeare_char", "n_head": 6, "learning_rate": 1e-3, "compile": compiled},
    }


def build_nanogpt_checkpoint(module: nn.Module) -> dict[str, Any]:
    """What build-nanogpt's training script saves: its config is an object of a class of its own."""
    return {"model": module.state_dict(), "config": GPTConfig(), "step": 19072, "val_loss": 3.07}
