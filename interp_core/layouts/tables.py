"""What each project calls its weights, a table a layout.

A table maps their key to ours. `{l}` stands for a layer, `{h}` for a head with weights of its own, `{p}` for weight or
bias. `attn.qkv` is query, key and value in one matrix, in this order, whole and not interleaved by head. What has to be
turned round on the way stands in `turned`.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Tensors = Mapping[str, Tensor]
Turn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layout:
    """How one project names and arranges its weights, and what its code does that no file says.

    Attributes:
        name: what a page calls it.
        marks: keys by which it is known.
        keys: their key to ours.
        masks: causal masks, consumed once they were seen to be that.
        constants: other buffers that say nothing.
        turned: part of our key to what their tensor needs.
        prefix: put before every key by some of its files.
        assumed: fields of the config as the project's code has them.
        norms: which norms its code can have.
        fits: what else must hold of the tensors, and of the names beside them.
    """

    name: str
    marks: tuple[str, ...]
    keys: Mapping[str, str]
    masks: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    turned: Mapping[str, Turn] = field(default_factory=dict)
    prefix: str = ""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[str, ...] = ("full",)
    fits: Callable[[Tensors, Set[str]], bool] = lambda *_: True


def _transposed(weight: Tensor) -> Tensor:
    return weight.T


def _rows_of_heads(weight: Tensor) -> Tensor:
    """[head d_model d_head] to [head·d_head d_model]."""
    return weight.transpose(1, 2).flatten(0, 1)


def _columns_of_heads(weight: Tensor) -> Tensor:
    """[head d_head d_model] to [d_model head·d_head]."""
    return weight.flatten(0, 1).T


def _flat(bias: Tensor) -> Tensor:
    return bias.flatten()


EXACT, TANH, RELU = {"activation": "gelu"}, {"activation": "gelu_tanh"}, {"activation": "relu"}
ALL_NORMS = ("full", "weight", "plain", "none")
MLP = {"blocks.{l}.mlp.fc.{p}": "blocks.{l}.mlp.fc.{p}", "blocks.{l}.mlp.proj.{p}": "blocks.{l}.mlp.proj.{p}"}
NORMS = {"blocks.{l}.ln1.{p}": "blocks.{l}.ln1.{p}", "blocks.{l}.ln2.{p}": "blocks.{l}.ln2.{p}"}

COURSE = Layout(
    name="course",
    marks=("tok.weight", "pos.weight", "blocks.0.attn.heads.0.key.weight"),
    keys={
        "tok.weight": "tok.weight",
        "pos.weight": "pos.weight",
        "blocks.{l}.attn.heads.{h}.query.{p}": "blocks.{l}.attn.query.{p}",
        "blocks.{l}.attn.heads.{h}.key.{p}": "blocks.{l}.attn.key.{p}",
        "blocks.{l}.attn.heads.{h}.value.{p}": "blocks.{l}.attn.value.{p}",
        "blocks.{l}.attn.proj.{p}": "blocks.{l}.attn.proj.{p}",
        **MLP,
        **NORMS,
        "lnf.{p}": "lnf.{p}",
        "head.{p}": "head.{p}",
    },
    masks=("blocks.{l}.attn.heads.{h}.tril",),
    assumed=EXACT,
    norms=ALL_NORMS,
)

LECTURE = Layout(
    name="lecture: let's build GPT",
    marks=("token_embedding_table.weight", "position_embedding_table.weight", "blocks.0.sa.heads.0.key.weight"),
    keys={
        "token_embedding_table.weight": "tok.weight",
        "position_embedding_table.weight": "pos.weight",
        "blocks.{l}.sa.heads.{h}.query.{p}": "blocks.{l}.attn.query.{p}",
        "blocks.{l}.sa.heads.{h}.key.{p}": "blocks.{l}.attn.key.{p}",
        "blocks.{l}.sa.heads.{h}.value.{p}": "blocks.{l}.attn.value.{p}",
        "blocks.{l}.sa.proj.{p}": "blocks.{l}.attn.proj.{p}",
        "blocks.{l}.ffwd.net.0.{p}": "blocks.{l}.mlp.fc.{p}",
        "blocks.{l}.ffwd.net.2.{p}": "blocks.{l}.mlp.proj.{p}",
        **NORMS,
        "ln_f.{p}": "lnf.{p}",
        "lm_head.{p}": "head.{p}",
    },
    masks=("blocks.{l}.sa.heads.{h}.tril",),
    assumed=RELU,
)

_GPT2_KEYS = {
    "wte.weight": "tok.weight",
    "wpe.weight": "pos.weight",
    "h.{l}.ln_1.{p}": "blocks.{l}.ln1.{p}",
    "h.{l}.attn.c_attn.{p}": "blocks.{l}.attn.qkv.{p}",
    "h.{l}.attn.c_proj.{p}": "blocks.{l}.attn.proj.{p}",
    "h.{l}.ln_2.{p}": "blocks.{l}.ln2.{p}",
    "h.{l}.mlp.c_fc.{p}": "blocks.{l}.mlp.fc.{p}",
    "h.{l}.mlp.c_proj.{p}": "blocks.{l}.mlp.proj.{p}",
    "ln_f.{p}": "lnf.{p}",
    "lm_head.weight": "head.weight",
}
_GPT2: dict[str, Any] = {
    "marks": ("wte.weight", "wpe.weight", "h.0.attn.c_attn.weight"),
    "keys": _GPT2_KEYS,
    "masks": ("h.{l}.attn.bias",),
    "constants": ("h.{l}.attn.masked_bias",),
    "prefix": "transformer.",
}


def _is_conv1d(tensors: Tensors) -> bool:
    """Whether matrices map rows to columns. The fused one is never square, and all matrices of a file agree."""
    weight = tensors["h.0.attn.c_attn.weight"]
    return weight.ndim == 2 and weight.shape[1] == 3 * weight.shape[0]


def _is_tied(tensors: Tensors) -> bool:
    head, token = tensors.get("lm_head.weight"), tensors["wte.weight"]
    return head is None or (head.shape == token.shape and bool((head == token).all()))


HUGGING_FACE = Layout(
    name="Hugging Face GPT-2",
    turned=dict.fromkeys(("qkv.weight", "proj.weight", "fc.weight"), _transposed),
    assumed=TANH,
    fits=lambda tensors, beside: _is_conv1d(tensors),
    **_GPT2,
)
BUILD_NANOGPT = Layout(
    name="build-nanogpt",
    assumed=TANH,
    fits=lambda tensors, beside: _is_tied(tensors) and {"step", "val_loss"} <= beside,
    **_GPT2,
)
NANOGPT = Layout(
    name="nanoGPT",
    assumed=EXACT,
    norms=("full", "weight"),
    fits=lambda tensors, beside: _is_tied(tensors),
    **_GPT2,
)
MINGPT = Layout(name="minGPT (since June 2022)", assumed=TANH, **_GPT2)

TRANSFORMER_LENS = Layout(
    name="TransformerLens",
    marks=("embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_Q"),
    keys={
        "embed.W_E": "tok.weight",
        "pos_embed.W_pos": "pos.weight",
        "blocks.{l}.ln1.w": "blocks.{l}.ln1.weight",
        "blocks.{l}.ln1.b": "blocks.{l}.ln1.bias",
        "blocks.{l}.attn.W_Q": "blocks.{l}.attn.query.weight",
        "blocks.{l}.attn.W_K": "blocks.{l}.attn.key.weight",
        "blocks.{l}.attn.W_V": "blocks.{l}.attn.value.weight",
        "blocks.{l}.attn.W_O": "blocks.{l}.attn.proj.weight",
        "blocks.{l}.attn.b_Q": "blocks.{l}.attn.query.bias",
        "blocks.{l}.attn.b_K": "blocks.{l}.attn.key.bias",
        "blocks.{l}.attn.b_V": "blocks.{l}.attn.value.bias",
        "blocks.{l}.attn.b_O": "blocks.{l}.attn.proj.bias",
        "blocks.{l}.ln2.w": "blocks.{l}.ln2.weight",
        "blocks.{l}.ln2.b": "blocks.{l}.ln2.bias",
        "blocks.{l}.mlp.W_in": "blocks.{l}.mlp.fc.weight",
        "blocks.{l}.mlp.b_in": "blocks.{l}.mlp.fc.bias",
        "blocks.{l}.mlp.W_out": "blocks.{l}.mlp.proj.weight",
        "blocks.{l}.mlp.b_out": "blocks.{l}.mlp.proj.bias",
        "ln_final.w": "lnf.weight",
        "ln_final.b": "lnf.bias",
        "unembed.W_U": "head.weight",
        "unembed.b_U": "head.bias",
    },
    masks=("blocks.{l}.attn.mask",),
    constants=("blocks.{l}.attn.IGNORE",),
    turned={
        **dict.fromkeys(("attn.query.weight", "attn.key.weight", "attn.value.weight"), _rows_of_heads),
        **dict.fromkeys(("attn.query.bias", "attn.key.bias", "attn.value.bias"), _flat),
        "attn.proj.weight": _columns_of_heads,
        **dict.fromkeys(("mlp.fc.weight", "mlp.proj.weight", "head.weight"), _transposed),
    },
    assumed={"activation": "gelu_tanh", "norm": "plain"},  # without learned norms they were folded into other weights
    norms=("full", "plain", "none"),
)

FROM_SCRATCH = Layout(
    name="LLMs-from-scratch",
    marks=("tok_emb.weight", "pos_emb.weight", "trf_blocks.0.att.W_query.weight"),
    keys={
        "tok_emb.weight": "tok.weight",
        "pos_emb.weight": "pos.weight",
        "trf_blocks.{l}.att.W_query.{p}": "blocks.{l}.attn.query.{p}",
        "trf_blocks.{l}.att.W_key.{p}": "blocks.{l}.attn.key.{p}",
        "trf_blocks.{l}.att.W_value.{p}": "blocks.{l}.attn.value.{p}",
        "trf_blocks.{l}.att.out_proj.{p}": "blocks.{l}.attn.proj.{p}",
        "trf_blocks.{l}.ff.layers.0.{p}": "blocks.{l}.mlp.fc.{p}",
        "trf_blocks.{l}.ff.layers.2.{p}": "blocks.{l}.mlp.proj.{p}",
        "trf_blocks.{l}.norm1.scale": "blocks.{l}.ln1.weight",
        "trf_blocks.{l}.norm1.shift": "blocks.{l}.ln1.bias",
        "trf_blocks.{l}.norm2.scale": "blocks.{l}.ln2.weight",
        "trf_blocks.{l}.norm2.shift": "blocks.{l}.ln2.bias",
        "final_norm.scale": "lnf.weight",
        "final_norm.shift": "lnf.bias",
        "out_head.weight": "head.weight",
    },
    masks=("trf_blocks.{l}.att.mask",),
    assumed=TANH,
)

# In the order in which they are tried: those of the same keys differ by `fits`, the last of them takes what is left.
LAYOUTS = (COURSE, LECTURE, HUGGING_FACE, BUILD_NANOGPT, NANOGPT, MINGPT, TRANSFORMER_LENS, FROM_SCRATCH)
