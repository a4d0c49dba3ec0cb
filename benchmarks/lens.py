"""TransformerLens as the other side: our weights under its names."""

from typing import Any

import torch

from interp_core.model import GPT


def of(model: GPT) -> Any | None:
    """The same model in TransformerLens (below version 4), or None, said aloud, where that is not installed."""
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        print("TransformerLens (<4) is not installed, its side is left out")
        return None
    c = model.config
    lens = HookedTransformer(
        HookedTransformerConfig(
            n_layers=c.layers, d_model=c.d_model, n_ctx=c.context, d_head=c.d_head, n_heads=c.heads, d_mlp=c.d_mlp,
            d_vocab=c.d_vocab, act_fn="gelu", normalization_type="LN", eps=c.norm_eps, default_prepend_bos=False,
        )
    )  # fmt: skip
    lens.load_state_dict(_to_lens(model), strict=False)
    return lens


def _to_lens(model: GPT) -> dict[str, torch.Tensor]:
    c, state = model.config, model.state_dict()
    lens = {
        "embed.W_E": state["tok.weight"],
        "pos_embed.W_pos": state["pos.weight"],
        "ln_final.w": state["lnf.weight"],
        "ln_final.b": state["lnf.bias"],
        "unembed.W_U": state["head.weight"].T,
    }
    for layer in range(c.layers):
        at = f"blocks.{layer}"
        for name, other in (("query", "Q"), ("key", "K"), ("value", "V")):
            weight = state[f"{at}.attn.{name}.weight"].unflatten(0, (c.heads, c.d_head))
            lens[f"{at}.attn.W_{other}"] = weight.transpose(1, 2)
        lens[f"{at}.attn.W_O"] = state[f"{at}.attn.proj.weight"].T.unflatten(0, (c.heads, c.d_head))
        lens[f"{at}.attn.b_O"] = state[f"{at}.attn.proj.bias"]
        for norm in ("ln1", "ln2"):
            lens |= {
                f"{at}.{norm}.{end}": state[f"{at}.{norm}.{kind}"] for end, kind in (("w", "weight"), ("b", "bias"))
            }
        for name, other in (("fc", "in"), ("proj", "out")):
            lens[f"{at}.mlp.W_{other}"] = state[f"{at}.mlp.{name}.weight"].T
            lens[f"{at}.mlp.b_{other}"] = state[f"{at}.mlp.{name}.bias"]
    return lens
