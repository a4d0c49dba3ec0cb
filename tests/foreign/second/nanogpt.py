"""nanoGPT: queries, keys and values stacked as the rows of one Linear, a tied head, biases everywhere or nowhere."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import scramble


class Attention(nn.Module):
    """Takes every head's rows out of the stack by number: d of queries, then d of keys, then d of values."""

    def __init__(self, width: int, heads: int, context: int, bias: bool, buffers: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.heads = heads
        if buffers:
            self.register_buffer("bias", torch.tril(torch.ones(context, context))[None, None])

    def part(self, x: Tensor, start: int, size: int) -> Tensor:
        bias = self.c_attn.bias
        rows = slice(start, start + size)
        return functional.linear(x, self.c_attn.weight[rows], None if bias is None else bias[rows])

    def forward(self, x: Tensor) -> Tensor:
        _, length, width = x.shape
        size = width // self.heads
        mixed = []
        for first in range(0, width, size):
            query, key, value = (self.part(x, which * width + first, size) for which in range(3))
            scores = query @ key.mT / size**0.5
            scores = scores + torch.full((length, length), -torch.inf).triu(1)
            mixed.append(scores.softmax(2) @ value)
        return self.c_proj(torch.cat(mixed, 2))


class MLP(nn.Module):
    def __init__(self, width: int, bias: bool, tanh: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)
        self.approximate = "tanh" if tanh else "none"

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate=self.approximate))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, bias: bool, tanh: bool, buffers: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, context, bias, buffers)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = MLP(width, bias, tanh)


class NanoGPT(nn.Module):
    """`tanh` is the GELU of before May 2023, `buffers` the stored causal mask of old files."""

    def __init__(
        self,
        vocabulary: int = 11,
        context: int = 12,
        width: int = 16,
        heads: int = 4,
        layers: int = 2,
        bias: bool = True,
        tanh: bool = False,
        buffers: bool = False,
    ) -> None:
        super().__init__()
        self.model_args = {"n_layer": layers, "n_head": heads, "n_embd": width, "block_size": context}
        self.model_args |= {"bias": bias, "vocab_size": vocabulary, "dropout": 0.0}
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(vocabulary, width)
        self.transformer.wpe = nn.Embedding(context, width)
        self.transformer.h = nn.ModuleList(Block(width, heads, context, bias, tanh, buffers) for _ in range(layers))
        self.transformer.ln_f = nn.LayerNorm(width, bias=bias)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[: tokens.shape[1]]
        for block in self.transformer.h:
            x = x + block.attn(block.ln_1(x))
            x = x + block.mlp(block.ln_2(x))
        return self.lm_head(self.transformer.ln_f(x))


def model(seed: int = 0, **options: int | bool) -> NanoGPT:
    return scramble(NanoGPT(**options), seed)


def as_checkpoint(model: NanoGPT, compiled: bool = False) -> dict[str, Any]:
    """What the training script saves, with the state of an optimizer that has taken a step (on a copy)."""
    copy = deepcopy(model)
    groups = [
        {"params": [p for p in copy.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in copy.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    copy(torch.zeros(1, 2, dtype=torch.long)).logsumexp(2).sum().backward()
    optimizer.step()
    config = {
        "out_dir": "out-shakespeare-char",
        "dataset": "shakespeare_char",
        "batch_size": 64,
        "gradient_accumulation_steps": 1,
    }
    config |= {"learning_rate": 1e-3, "max_iters": 5000, "device": "cpu", "dtype": "float32", "compile": compiled}
    config |= {name: value for name, value in model.model_args.items() if name != "vocab_size"}
    return {
        "model": {("_orig_mod." if compiled else "") + name: value for name, value in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "model_args": dict(model.model_args),
        "iter_num": 250,
        "best_val_loss": torch.tensor(1.9),
        "config": config,
    }
