"""The atlas of 16 heads over 32 windows, against the course's notebook and TransformerLens."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import timing
from interp_core import atlas, checkpoints, corpora
from interp_core.model import GPT, forward

OURS = "ours: patterns and all scores"
WINDOWS, CONTEXT = 32, 64


def run() -> None:
    """Prints the comparison; what is not on this machine is left out by name."""
    reference = Path(os.environ.get("LOUPE_DATA", "")).resolve().parent / "reference"
    if not (reference / "course_code.py").is_file():
        print("atlas: needs the course's code beside the folder that LOUPE_DATA names")
        return
    notebook = _course(reference)
    model = checkpoints.load(reference / "step6_model.pt").model
    windows = corpora.windows(notebook["val_ids"], CONTEXT, WINDOWS, seed=0)
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: atlas.head_atlas(model, windows),
        "ours: patterns only": lambda: _patterns(model, windows[:, :-1]),
        "the notebook's cell: patterns only": lambda: notebook["head_patterns"](WINDOWS),
    }
    lens = _transformer_lens(model)
    if lens is not None:
        ways["TransformerLens run_with_cache: patterns only"] = lambda: lens(windows[:, :-1])
    else:
        print("atlas: TransformerLens is not installed, its side is left out")
    timing.report(f"Atlas of 16 heads over {WINDOWS} windows", OURS, timing.medians(ways))


@torch.no_grad()
def _patterns(model: GPT, tokens: torch.Tensor) -> torch.Tensor:
    trace = forward(model, tokens, [f"pattern.{layer}" for layer in range(model.config.layers)], stop_early=True)
    return torch.stack([trace[f"pattern.{layer}"].mean(0) for layer in range(model.config.layers)])


def _course(reference: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("course_code", reference / "course_code.py")
    assert spec is not None
    assert spec.loader is not None
    course = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(course)
    return course.notebook()


def _transformer_lens(model: GPT) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The same model in TransformerLens, checked to give the same patterns."""
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        return None
    c = model.config
    lens = HookedTransformer(
        HookedTransformerConfig(
            n_layers=c.layers, d_model=c.d_model, n_ctx=c.context, d_head=c.d_head, n_heads=c.heads, d_mlp=c.d_mlp,
            d_vocab=c.d_vocab, act_fn="gelu", normalization_type="LN", eps=c.norm_eps, default_prepend_bos=False,
        )
    )  # fmt: skip
    lens.load_state_dict(_to_lens(model), strict=False)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(c.layers)]

    @torch.no_grad()
    def patterns(tokens: torch.Tensor) -> torch.Tensor:
        _, cache = lens.run_with_cache(tokens, names_filter=names)
        return torch.stack([cache[name].mean(0) for name in names])

    tokens = torch.arange(2 * c.context).view(2, c.context) % c.d_vocab
    torch.testing.assert_close(patterns(tokens), _patterns(model, tokens), atol=1e-5, rtol=1e-4)
    return patterns


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
