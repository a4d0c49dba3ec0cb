"""One GPT and one forward pass that returns whatever internals were asked for.

Read this file first. `ModelConfig` says what a model is made of, `GPT` holds its weights and computes nothing, and
`forward` is the only place where a token becomes a logit. Every intermediate tensor has a name, its *site*:

    embed                  token plus position embedding                   [batch pos d_model]
    resid_pre.l            the residual stream that enters layer l         [batch pos d_model]
    q.l  k.l  v.l          queries, keys, values                           [batch pos head d_head]
    pattern.l              attention, rows sum to one                      [batch head query key]
    z.l                    each head's mixed values, before the output     [batch pos head d_head]
    attn_out.l             what attention adds to the stream               [batch pos d_model]
    resid_mid.l            the stream between attention and MLP            [batch pos d_model]
    mlp_post.l             MLP activations after the nonlinearity          [batch pos d_mlp]
    mlp_out.l              what the MLP adds to the stream                 [batch pos d_model]
    resid_post.l           the residual stream that leaves layer l         [batch pos d_model]
    ln_final               the normalised stream that the head reads       [batch pos d_model]
    logits                 scores of the next token                        [batch pos d_vocab]

`taps` names the sites to keep, `edits` maps a site to a function of its tensor, `start` restarts from a cached residual
stream. There are no hooks: a model can be shared between threads because a forward pass leaves no trace on it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp_core.attention import attend, attention_pattern, mix

Edit = Callable[[Tensor], Tensor]
Edits = Mapping[str, Edit]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
LAYER_SITES = (
    "resid_pre", "q", "k", "v", "pattern", "z", "attn_out", "resid_mid", "mlp_post", "mlp_out", "resid_post",
)  # fmt: skip
MLP_SITES = ("mlp_post", "mlp_out")
MOST_LOGITS = 2**25  # numbers: 128 MB, held a few times
START_SITES = ("resid_pre", "resid_mid", "resid_post")


@dataclass(frozen=True)
class ModelConfig:
    """What a GPT is made of: everything that its weights alone may not tell.

    Raises:
        ValueError: a size is not positive, or an option has an unknown name.
    """

    d_vocab: int  # number of tokens
    context: int  # longest sequence, one learned position each
    d_model: int  # width of the residual stream
    heads: int  # attention heads in each layer
    layers: int
    d_head: int  # width of one head; usually d_model / heads
    d_mlp: int  # hidden width of the MLP; 0 for an attention-only model
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    norm: Literal["full", "weight", "plain", "none"] = "full"  # weight and bias; weight only; no parameters; no norm
    norm_eps: float = 1e-5
    qkv_bias: bool = False
    out_bias: bool = True  # attention output projection
    mlp_bias: bool = True
    head_bias: bool = False
    tied_head: bool = False  # the unembedding is the token embedding
    score_scale: float | None = None  # factor on query-key products; None means d_head ** -0.5

    def __post_init__(self) -> None:
        for name in ("d_vocab", "context", "d_model", "heads", "layers", "d_head"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if self.d_mlp < 0:
            raise ValueError(f"d_mlp is {self.d_mlp}, expected 0 (attention only) or more")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}, expected one of {', '.join(ACTIVATIONS)}")
        if self.norm not in ("full", "weight", "plain", "none"):
            raise ValueError(f"norm is {self.norm!r}, expected full, weight, plain or none")

    @property
    def scale(self) -> float:
        """The factor on query-key products."""
        return self.d_head**-0.5 if self.score_scale is None else self.score_scale


class Attention(nn.Module):
    """The four projections of one attention layer, the heads side by side in the rows of each."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = config.heads * config.d_head
        self.query = nn.Linear(config.d_model, inner, bias=config.qkv_bias)
        self.key = nn.Linear(config.d_model, inner, bias=config.qkv_bias)
        self.value = nn.Linear(config.d_model, inner, bias=config.qkv_bias)
        self.proj = nn.Linear(inner, config.d_model, bias=config.out_bias)


class MLP(nn.Module):
    """The two projections of one MLP."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(config.d_model, config.d_mlp, bias=config.mlp_bias)
        self.proj = nn.Linear(config.d_mlp, config.d_model, bias=config.mlp_bias)


class Block(nn.Module):
    """One layer: attention and, unless the model is attention-only, an MLP, each behind its norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.ln1, self.attn = _norm(config), Attention(config)
        self.ln2 = _norm(config) if config.d_mlp else None
        self.mlp = MLP(config) if config.d_mlp else None


class GPT(nn.Module):
    """The weights of a decoder-only transformer with learned positions and norms before each part (GPT-2's shape).

    A new one is initialised as GPT-2 was (Radford et al. 2019, section 2.3): normal weights of standard deviation
    `INIT_STD`, those that write into the residual stream divided by sqrt(2 layers), biases zero. It comes in eval mode
    and without gradients; training switches both on.
    """

    INIT_STD = 0.02

    def __init__(self, config: ModelConfig, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.tok = nn.Embedding(config.d_vocab, config.d_model)
        self.pos = nn.Embedding(config.context, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.lnf = _norm(config)
        self.head = nn.Linear(config.d_model, config.d_vocab, bias=config.head_bias)
        if config.tied_head:
            self.head.weight = self.tok.weight
        if seed is not None:  # else the weights come from elsewhere
            self._initialise(torch.Generator().manual_seed(seed))
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                writes = name.endswith("proj.weight")
                std = self.INIT_STD / math.sqrt(2 * self.config.layers) if writes else self.INIT_STD
                parameter.normal_(0.0, std, generator=generator)
            else:
                parameter.fill_(1.0 if "ln" in name and name.endswith("weight") else 0.0)

    def block(self, layer: int) -> Block:
        """The weights of one layer."""
        return cast(Block, self.blocks[layer])

    def count(self) -> int:
        """Number of parameters; a tied head counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


@dataclass(frozen=True, eq=False)
class Trace:
    """What one forward pass was asked to keep: `trace["z.0"]`, `trace.logits`."""

    sites: dict[str, Tensor]

    def __getitem__(self, site: str) -> Tensor:
        if site not in self.sites:
            raise KeyError(f"{site} was not tapped; this trace holds {', '.join(self.sites) or 'nothing'}")
        return self.sites[site]

    @property
    def logits(self) -> Float[Tensor, "batch pos d_vocab"]:
        """Scores of the next token at every position; absent when the pass stopped early."""
        return self["logits"]


@dataclass(eq=False)
class Cache:
    """Keys and values of the positions already seen, so that generation reads each token once."""

    keys: list[Float[Tensor, "batch context head d_head"]]
    values: list[Float[Tensor, "batch context head d_head"]]
    length: int = 0

    @classmethod
    def empty(cls, config: ModelConfig, batch: int, room: int | None = None) -> "Cache":
        """Room for `room` positions of `batch` sequences, at most and by default `config.context`."""
        shape = (batch, min(config.context, room or config.context), config.heads, config.d_head)
        keys, values = ([torch.zeros(shape) for _ in range(config.layers)] for _ in "kv")
        return cls(keys, values)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes new keys and values behind the old ones of `layer` and returns all of them."""
        end = self.length + k.shape[1]
        self.keys[layer][:, self.length : end] = k
        self.values[layer][:, self.length : end] = v
        return self.keys[layer][:, :end], self.values[layer][:, :end]


def sites(config: ModelConfig) -> tuple[str, ...]:
    """Every site of a model, in the order in which the forward pass writes them."""
    names = [name for name in LAYER_SITES if config.d_mlp or name not in MLP_SITES]
    layers = [f"{name}.{layer}" for layer in range(config.layers) for name in names]
    return ("embed", *layers, "ln_final", "logits")


def forward(
    model: GPT,
    tokens: Int[Tensor, "batch pos"] | None,
    taps: Iterable[str] = (),
    edits: Edits | None = None,
    start: tuple[str, Float[Tensor, "batch pos d_model"]] | None = None,
    cache: Cache | None = None,
    stop_early: bool = False,
) -> Trace:
    """Runs the model and keeps the sites that `taps` names, and the logits.

    Args:
        model: the weights; never changed.
        tokens: token numbers; None when `start` is given.
        taps: sites to keep (see the top of this module).
        edits: for a site, a function that replaces its tensor by another of the same shape: ablation, patching,
            steering. Layers above see the edited tensor, and so does a tap on the same site.
        start: a site `resid_pre.l`, `resid_mid.l` or `resid_post.l` and its tensor: computes nothing below it.
        cache: keys and values of earlier positions; the new ones are written into it.
        stop_early: end after the layer part that holds the last tap; the trace then has no logits.

    Raises:
        ValueError: unknown site, sequence longer than the context, or a site that cannot be started from.
    """
    config = model.config
    keep = _Keeper(config, taps, edits or {}, stop_early)
    if start is not None:
        first, middle, x = _resume(config, start)
    elif tokens is not None:
        first, middle, x = 0, False, keep("embed", _embed(model, tokens, cache.length if cache else 0))
    else:
        raise ValueError("forward needs tokens, or a residual stream to start from")
    for layer in range(first, config.layers):
        block = model.block(layer)
        if not middle:
            x = keep(f"resid_pre.{layer}", x)
            x = x + _attention(block, x, layer, keep, cache)
        x, middle = keep(f"resid_mid.{layer}", x), False
        if keep.done:
            return Trace(keep.kept)
        if config.d_mlp:
            x = x + _mlp(block, x, layer, keep)
        x = keep(f"resid_post.{layer}", x)
        if keep.done:
            return Trace(keep.kept)
    if cache is not None:
        cache.length += x.shape[1]
    keep("logits", model.head(keep("ln_final", model.lnf(x))))
    return Trace(keep.kept)


@dataclass(eq=False)
class _Keeper:
    """Applies the edit of a site to its tensor, keeps the tensor if the site is tapped, and passes it on."""

    config: ModelConfig
    taps: Iterable[str]
    edits: Edits
    stop_early: bool
    kept: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = sites(self.config)
        self.wanted = set(self.taps)
        unknown = [site for site in {*self.wanted, *self.edits} if site not in known]
        if unknown:
            raise ValueError(f"unknown site {unknown[0]!r}; this model has {', '.join(known)}")
        if not self.stop_early:
            self.wanted.add("logits")

    def __call__(self, site: str, value: Tensor) -> Tensor:
        if site in self.edits:
            value = self.edits[site](value)
        if site in self.wanted:
            self.kept[site] = value
        return value

    def needs(self, site: str) -> bool:
        return site in self.wanted or site in self.edits

    @property
    def done(self) -> bool:
        return self.stop_early and len(self.kept) == len(self.wanted)


def _embed(model: GPT, tokens: Tensor, offset: int) -> Tensor:
    end, context = offset + tokens.shape[1], model.config.context
    if end > context:
        raise ValueError(f"the sequence has {end} tokens, but this model's context is {context}: use shorter windows")
    return model.tok(tokens) + model.pos.weight[offset:end]


def _resume(config: ModelConfig, start: tuple[str, Tensor]) -> tuple[int, bool, Tensor]:
    """The layer to begin with, whether its attention is already done, and the stream there."""
    site, x = start
    name, _, layer = site.partition(".")
    if name not in START_SITES or site not in sites(config):
        raise ValueError(f"cannot start from {site!r}: give {', '.join(START_SITES)} of a layer below {config.layers}")
    return int(layer) + (name == "resid_post"), name == "resid_mid", x


def _attention(block: Block, x: Tensor, layer: int, keep: _Keeper, cache: Cache | None) -> Tensor:
    config, attn = keep.config, block.attn
    xn = block.ln1(x)
    split = (*xn.shape[:2], config.heads, config.d_head)
    q = keep(f"q.{layer}", attn.query(xn).view(split))
    k = keep(f"k.{layer}", attn.key(xn).view(split))
    v = keep(f"v.{layer}", attn.value(xn).view(split))
    if cache is not None:
        k, v = cache.extend(layer, k, v)
    if keep.needs(f"pattern.{layer}"):
        pattern = keep(f"pattern.{layer}", attention_pattern(q, k, config.scale))
        z = mix(pattern, v)
    else:
        z = attend(q, k, v, config.scale)
    z = keep(f"z.{layer}", z)
    return keep(f"attn_out.{layer}", attn.proj(z.flatten(2)))


def _mlp(block: Block, x: Tensor, layer: int, keep: _Keeper) -> Tensor:
    assert block.mlp is not None
    assert block.ln2 is not None
    act = ACTIVATIONS[keep.config.activation]
    post = keep(f"mlp_post.{layer}", act(block.mlp.fc(block.ln2(x))))
    return keep(f"mlp_out.{layer}", block.mlp.proj(post))


def _norm(config: ModelConfig) -> nn.Module:
    if config.norm == "none":
        return nn.Identity()
    affine = config.norm != "plain"
    return nn.LayerNorm(config.d_model, config.norm_eps, elementwise_affine=affine, bias=config.norm == "full")


def batch_of(config: ModelConfig, length: int) -> int:
    """How many windows' logits may be held at once."""
    return max(1, MOST_LOGITS // (length * config.d_vocab))


def token_losses(
    model: GPT, windows: Int[Tensor, "window pos_plus_1"], edits: Edits | None = None, batch: int = 64
) -> Float[Tensor, "window pos"]:
    """Cross-entropy of every next token, in nats; at most `batch` windows at a time, fewer of a large vocabulary."""
    parts = windows.split(min(batch, batch_of(model.config, windows.shape[1])))
    return torch.cat([next_token_losses(forward(model, w[:, :-1], edits=edits).logits, w[:, 1:]) for w in parts])


def next_token_losses(
    logits: Float[Tensor, "window pos d_vocab"], targets: Int[Tensor, "window pos"]
) -> Float[Tensor, "window pos"]:
    """Cross-entropy of each target under the logits at its place, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
