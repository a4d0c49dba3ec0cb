"""What the configs of other projects call the fields of ours."""

from collections.abc import Mapping
from typing import Any

from interp_core.pickles import CheckpointError

NAMES = {
    "heads": ("n_head", "n_heads", "num_heads", "num_attention_heads", "nhead", "heads"),
    "layers": ("n_layer", "n_layers", "num_layers", "num_hidden_layers", "layers"),
    "d_model": ("n_embd", "n_embed", "d_model", "emb_dim", "embed_dim", "hidden_size"),
    "context": ("block_size", "n_positions", "n_ctx", "context_length"),
    "d_vocab": ("vocab_size", "d_vocab"),
    "d_head": ("d_head",),
    "d_mlp": ("n_inner", "d_mlp"),
    "activation": ("activation_function", "act_fn", "activation"),
    "norm_eps": ("layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
LENS_NORMS = {"LN": "full", "LNPre": "plain", None: "none", "none": "none"}
EXPECTED = {  # what a config may say of a thing that is not read in any other form
    "model_type": ("gpt2",),
    "positional_embedding_type": ("standard",),
    "attention_dir": ("causal",),
    "parallel_attn_mlp": (False,),
    "gated_mlp": (False,),
    "use_local_attn": (False,),
    "use_qk_norm": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
}


def translate(settings: Mapping[str, object]) -> dict[str, Any]:
    """The fields of our config that a foreign one states.

    Raises:
        CheckpointError: it states something that is not read here: another activation, norm, kind of position.
    """
    for name, allowed in EXPECTED.items():
        if name in settings and settings[name] not in allowed:
            raise CheckpointError(
                f"The config says {name} = {settings[name]}, which is not read here: expected {allowed[0]}."
            )
    found: dict[str, Any] = {}
    for ours, theirs in NAMES.items():
        value = next((settings[name] for name in theirs if settings.get(name) is not None), None)
        if value is not None:
            found[ours] = value
    for name in ("heads", "layers", "d_model", "context", "d_vocab", "d_head", "d_mlp"):
        value = found.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int):
            del found[name]
    if "activation" in found:
        found["activation"] = _activation(found["activation"])
    if "norm_eps" in found and not (isinstance(found["norm_eps"], float) and 0 < found["norm_eps"] < 1):
        raise CheckpointError(f"The config says norm_eps = {found['norm_eps']}, expected a small positive number.")
    if "normalization_type" in settings:
        found |= _of_lens(settings)
    scaled = settings.get("scale_attn_weights")
    if isinstance(scaled, bool):
        found["score_scale"] = None if scaled else 1.0
    return found


def _activation(name: object) -> str:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise CheckpointError(
            f"The config says that the activation is {name}, which is not read here: expected one of {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


def _of_lens(settings: Mapping[str, object]) -> dict[str, Any]:
    """What only TransformerLens' config says."""
    kind = settings["normalization_type"]
    found: dict[str, Any] = {}
    if kind is not None and kind not in LENS_NORMS:
        raise CheckpointError(f"The config says that the norm is {kind}, which is not read here: expected LN or LNPre.")
    found["norm"] = LENS_NORMS[kind if isinstance(kind, str) else None]
    eps, scale = settings.get("eps"), settings.get("attn_scale")
    if isinstance(eps, float):
        found["norm_eps"] = eps
    if settings.get("use_attn_scale") is False:
        found["score_scale"] = 1.0
    elif isinstance(scale, int | float) and scale > 0:
        found["score_scale"] = 1.0 / scale
    return found
