"""Foreign state dicts to our GPT and back. So far one layout: the course's, which our own files use too.

Keys of the course's layout (`blocks.0.attn.heads.2.key.weight`) hold one head each; ours hold the heads side by side in
the rows of one matrix. A file of ours may have more keys than the course's code knows (biases) or fewer (no MLP); what is
there is read from the keys, and what no key or shape can tell is listed as assumed.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interp_core.containers import CheckpointError
from interp_core.model import GPT, ModelConfig

COURSE = "course"
PER_HEAD = re.compile(r"blocks\.(\d{1,4})\.attn\.heads\.(\d{1,4})\.(query|key|value)\.(weight|bias)")
MASK = re.compile(r"blocks\.\d+\.attn\.heads\.\d+\.tril")  # a buffer: the causal mask, no weight
LAYER = re.compile(r"blocks\.(\d{1,4})\.")
MARKS = ("tok.weight", "pos.weight", "blocks.0.attn.heads.0.key.weight")

# Sizes beyond which a file is refused before a model is built from it.
LIMITS = {"d_vocab": 300_000, "context": 8_192, "d_model": 8_192, "heads": 256, "layers": 128, "d_mlp": 65_536}


@dataclass(frozen=True)
class Fact:
    """One thing known of a checkpoint, and from where: its keys, a shape, the card, or an assumption."""

    what: str
    value: str
    source: str


@dataclass(frozen=True, eq=False)
class Reading:
    """A model read from a foreign state dict, and how each part of its config became known."""

    model: GPT
    layout: str
    facts: tuple[Fact, ...]


def read(tensors: Mapping[str, Tensor], stated: Mapping[str, Any] | None = None) -> Reading:
    """Builds a GPT from named tensors.

    Args:
        tensors: a state dict, as `containers.read_tensors` returns it.
        stated: config fields known from a card; they must agree with the shapes.

    Raises:
        CheckpointError: another layout, missing or surplus keys, shapes that disagree, sizes out of bounds, non-finite
            weights, or a card that contradicts the file.
    """
    _recognise(tensors)
    config, facts = _infer(tensors, dict(stated or {}))
    weights = _join_heads({key: value for key, value in tensors.items() if not MASK.fullmatch(key)}, config)
    _check_room(config, weights)
    model = GPT(config, seed=None)
    _check_shapes(weights, model)
    weights = {key: _checked(key, value) for key, value in weights.items()}
    if config.tied_head:
        weights["head.weight"] = weights["tok.weight"]
    model.load_state_dict(weights, assign=True)
    if config.tied_head:
        model.head.weight = model.tok.weight
    return Reading(model, COURSE, facts)


def write(model: GPT) -> dict[str, Tensor]:
    """The state dict in the course's layout, causal masks among it, as the course's own code saves and loads it."""
    config, state = model.config, {}
    mask = torch.ones(config.context, config.context).tril()
    for key, value in model.state_dict().items():
        match = re.fullmatch(r"(blocks\.\d+\.attn)\.(query|key|value)\.(weight|bias)", key)
        if match is None:
            state[key] = value.clone()
            continue
        part, name, kind = match.groups()
        for head, rows in enumerate(value.split(config.d_head)):
            state[f"{part}.heads.{head}.{name}.{kind}"] = rows.clone()
            state[f"{part}.heads.{head}.tril"] = mask.clone()
    if config.tied_head:
        del state["head.weight"]
    return state


def _recognise(tensors: Mapping[str, Tensor]) -> None:
    missing = [mark for mark in MARKS if mark not in tensors]
    if missing:
        shown = ", ".join(list(tensors)[:3])
        raise CheckpointError(
            f"This checkpoint's keys are not laid out as the course's: {missing[0]} is missing, and it begins with {shown}. "
            "Expected the state dict of the course's GPT class."
        )
    for key in MARKS:
        if tensors[key].ndim != 2:
            raise CheckpointError(f"{key} has {tensors[key].ndim} dimensions, expected a matrix.")


def _infer(tensors: Mapping[str, Tensor], stated: dict[str, Any]) -> tuple[ModelConfig, tuple[Fact, ...]]:
    (d_vocab, d_model), (context, _) = tensors["tok.weight"].shape, tensors["pos.weight"].shape
    per_head = [match.groups() for key in tensors if (match := PER_HEAD.fullmatch(key))]
    has = tensors.__contains__
    fc = tensors.get("blocks.0.mlp.fc.weight")
    if fc is not None and fc.ndim != 2:
        raise CheckpointError(f"blocks.0.mlp.fc.weight has {fc.ndim} dimensions, expected a matrix.")
    seen: dict[str, Any] = {
        "d_vocab": d_vocab,
        "context": context,
        "d_model": d_model,
        "heads": 1 + max(int(head) for _, head, _, _ in per_head),
        "layers": 1 + max(int(match[1]) for key in tensors if (match := LAYER.match(key))),
        "d_head": tensors["blocks.0.attn.heads.0.key.weight"].shape[0],
        "d_mlp": 0 if fc is None else fc.shape[0],
        "norm": "full" if has("lnf.bias") else "weight" if has("lnf.weight") else stated.get("norm", "plain"),
        "qkv_bias": has("blocks.0.attn.heads.0.query.bias"),
        "out_bias": has("blocks.0.attn.proj.bias"),
        "mlp_bias": has("blocks.0.mlp.fc.bias") if fc is not None else ModelConfig.mlp_bias,
        "head_bias": has("head.bias"),
        "tied_head": not has("head.weight"),
    }
    for name, most in LIMITS.items():
        if not 0 <= seen[name] <= most:
            raise CheckpointError(f"This checkpoint has {name} = {seen[name]:,}, more than the {most:,} read here.")
    wrong = [name for name in seen if name in stated and stated[name] != seen[name]]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"The card says {name} = {stated[name]}, but the weights say {seen[name]}: the card belongs to another file."
        )
    try:
        config = ModelConfig(**{**stated, **seen})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The card's config cannot be used: {error}.") from error
    return config, _facts(config, seen, stated)


def _facts(config: ModelConfig, seen: Mapping[str, Any], stated: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Every field of the config in the order of its definition, with what it was known from."""
    facts = []
    for name, value in asdict(replace(config, score_scale=config.scale)).items():
        source = "keys and shapes" if name in seen else "card" if name in stated else "assumed: the course's"
        facts.append(Fact(name, f"{value:.4g}" if isinstance(value, float) else str(value), source))
    return tuple(facts)


def _join_heads(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """One matrix for all heads of a layer, in place of one for each."""
    joined: dict[str, Tensor] = {}
    heads: dict[str, dict[int, Tensor]] = {}
    for key, value in tensors.items():
        match = PER_HEAD.fullmatch(key)
        if match is None:
            joined[key] = value
        else:
            layer, head, name, kind = match.groups()
            heads.setdefault(f"blocks.{layer}.attn.{name}.{kind}", {})[int(head)] = value
    for key, parts in heads.items():
        missing = set(range(config.heads)) - set(parts)
        if missing:
            raise CheckpointError(f"{key} lacks head {min(missing)} of {config.heads}: the checkpoint is incomplete.")
        shapes = {tuple(part.shape[:1]) for part in parts.values()}
        if shapes != {(config.d_head,)} or len({part.shape for part in parts.values()}) != 1:
            raise CheckpointError(f"The heads of {key} differ in shape, expected {config.d_head} rows each.")
        joined[key] = torch.cat([parts[head] for head in range(config.heads)])
    return joined


def _checked(key: str, value: Tensor) -> Tensor:
    """The weight in single precision, if it is one and finite."""
    if not value.is_floating_point():
        raise CheckpointError(f"{key} is of type {value.dtype}, expected floating-point weights.")
    value = value.float()
    if not value.isfinite().all():
        count = int((~value.isfinite()).sum())
        raise CheckpointError(
            f"{key} holds {count:,} values that are not finite (NaN or infinite): its training diverged. "
            "Upload an earlier checkpoint of the run."
        )
    return value


def _check_room(config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Before anything is built: a few keys in a small file can claim a model of terabytes."""
    matrices = 4 * config.heads * config.d_head + 2 * config.d_mlp  # rows of d_model in each layer
    claimed = config.d_model * (config.d_vocab + config.context + config.layers * matrices)
    held = sum(value.numel() for value in weights.values())
    if claimed > held:
        raise CheckpointError(
            f"The keys of this checkpoint claim a model of {claimed:,} weights or more, but it holds {held:,}: it is incomplete."
        )


def _check_shapes(weights: Mapping[str, Tensor], model: GPT) -> None:
    expected = model.state_dict()
    if model.config.tied_head:
        del expected["head.weight"]
    missing, surplus = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    if missing or surplus:
        found = f"{missing[0]} is missing" if missing else f"{surplus[0]} is not known"
        raise CheckpointError(f"This checkpoint does not fit the course's layout: {found}. Expected its GPT class.")
    for key, value in weights.items():
        if value.shape != expected[key].shape:
            wanted = list(expected[key].shape)
            raise CheckpointError(f"{key} has shape {list(value.shape)}, expected {wanted} beside the other weights.")
