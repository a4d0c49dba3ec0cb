"""A foreign state dict to a GPT, by the table of its layout; and our own layout back.

What is there is read from keys and shapes; what a config or card states must agree with it; what is left is assumed, as the
project's code has it, and listed as assumed. A number of heads is never assumed. Every key is consumed or named in an error.
"""

import re
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interp_core.layouts.settings import translate
from interp_core.layouts.sorting import LIMITS, Sorted, recognise, sort, theirs
from interp_core.layouts.tables import COURSE, Layout
from interp_core.model import GPT, ModelConfig
from interp_core.pickles import CheckpointError

LAYER = re.compile(r"blocks\.(\d+)\.")
SEEN, ANSWERED, STATED = "keys and shapes", "your answer", "card"


class HeadsMissing(CheckpointError):
    """The weights fit, but neither they nor anything beside them say how many heads a layer has."""

    def __init__(self, layout: str, d_model: int) -> None:
        self.options = [n for n in range(1, min(d_model, LIMITS["heads"]) + 1) if d_model % n == 0]
        super().__init__(
            f"This {layout} file does not say how many heads a layer has: its matrices are the same for every divisor of its "
            f"width, {d_model}. Say it (answers={{'heads': …}}), or put the config beside it."
        )


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
    unsaid: tuple[str, ...]  # fields of the config that were assumed or answered: the file does not tell


def read(
    tensors: Mapping[str, Tensor],
    stated: Mapping[str, Any] | None = None,
    settings: Mapping[str, object] | None = None,
    answers: Mapping[str, Any] | None = None,
    beside: Set[str] = frozenset(),
) -> Reading:
    """Builds a GPT from named tensors.

    Args:
        tensors: a state dict, as `containers.read_contents` returns it.
        stated: config fields known from a card; they must agree with the shapes.
        settings: a config by its own names, from a file beside the weights or from among them.
        answers: config fields that a person gives.
        beside: names of what lay beside the weights in their file.

    Raises:
        HeadsMissing: nothing says how many heads a layer has.
        CheckpointError: another layout, missing or surplus keys, shapes that disagree, sizes out of bounds, non-finite
            weights, or a card or config that contradicts the file.
    """
    layout, tensors = recognise(tensors, beside)
    parts = sort(layout, tensors)
    _check_matrices(parts)
    known = [(dict(answers or {}), ANSWERED), (dict(stated or {}), STATED), (translate(settings or {}), "its config")]
    config, sources = _infer(layout, parts, known)
    _check_room(config, parts.weights)
    weights = {key: _checked(parts.keys[key], value) for key, value in parts.weights.items()}
    _check_shapes(weights, parts, config, layout)
    facts = _facts(config, sources)
    if (settings or {}).get("scale_attn_by_inverse_layer_idx") is True:
        _fold_layer_scale(weights)
        facts += (Fact("scores divided by layer + 1", "folded into the queries", "its config"),)
    unsaid = tuple(name for name, source in sources.items() if source == ANSWERED or source.startswith("assumed"))
    return Reading(build(config, weights), layout.name, facts, unsaid)


def build(config: ModelConfig, weights: Mapping[str, Tensor]) -> GPT:
    """A model of these weights, which are not copied: two models that differ in their config only can share them."""
    with torch.device("meta"):
        model = GPT(config, seed=None)
    weights = dict(weights)
    if config.tied_head:
        weights["head.weight"] = weights["tok.weight"]
    model.load_state_dict(weights, assign=True)
    if config.tied_head:
        model.head.weight = model.tok.weight
    return model.requires_grad_(False)


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
            state[f"{part}.heads.{head}.tril"] = mask
    if config.tied_head:
        del state["head.weight"]
    return state


def _check_matrices(parts: Sorted) -> None:
    for name in ("tok.weight", "pos.weight", "blocks.0.attn.query.weight", "blocks.0.mlp.fc.weight"):
        value = parts.weights.get(name)
        if value is not None and value.ndim != 2:
            raise CheckpointError(f"{parts.keys[name]} has {value.ndim} dimensions, expected a matrix.")


def _infer(
    layout: Layout, parts: Sorted, known: list[tuple[dict[str, Any], str]]
) -> tuple[ModelConfig, dict[str, str]]:
    """The config, and what each of its fields is known from."""
    if "blocks.0.attn.query.weight" not in parts.weights:
        raise CheckpointError(_unfit(layout, f"{theirs('blocks.0.attn.query.weight', layout)} is missing"))
    seen = _seen(layout, parts)
    for name, most in LIMITS.items():
        if not 0 <= seen.get(name, 0) <= most:
            raise CheckpointError(f"This checkpoint has {name} = {seen[name]:,}, more than the {most:,} read here.")
    values, sources = dict(seen), dict.fromkeys(seen, SEEN)
    for given, source in known:
        for name, value in given.items():
            if name in seen and value != seen[name]:
                whose = {ANSWERED: "You say", STATED: "The card says"}.get(source, "The config says")
                raise CheckpointError(
                    f"{whose} {name} = {value}, but the weights say {seen[name]}: "
                    + ("the card belongs to another file." if source == STATED else "one of them is of another model.")
                )
            if name not in values:
                values[name], sources[name] = value, source
    if "heads" not in values:
        raise HeadsMissing(layout.name, seen["d_model"])
    heads, width = values["heads"], parts.weights["blocks.0.attn.query.weight"].shape[0]
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1 or width % heads:
        raise CheckpointError(f"{heads} heads do not fit {width} rows of queries: expected a divisor of {width}.")
    values["d_head"], sources["d_head"] = width // heads, SEEN if sources["heads"] == SEEN else "width / heads"
    for name in ("activation", "norm"):
        if name not in values:
            values[name], sources[name] = layout.assumed.get(name, "plain"), f"assumed: {_whose(layout)}'s"
    if values["norm"] not in layout.norms:
        raise CheckpointError(
            f"Its norms have weights but no biases, which {layout.name} never has: expected LayerNorm, not RMSNorm."
        )
    try:
        config = ModelConfig(**values)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The card's config cannot be used: {error}.") from error
    for name in asdict(config):
        sources.setdefault(name, f"assumed: {_whose(layout)}'s")
    return config, sources


def _whose(layout: Layout) -> str:
    return "the course" if layout is COURSE else layout.name


def _seen(layout: Layout, parts: Sorted) -> dict[str, Any]:
    """What keys and shapes tell."""
    weights, has = parts.weights, parts.weights.__contains__
    (d_vocab, d_model), (context, _) = weights["tok.weight"].shape, weights["pos.weight"].shape
    fc = weights.get("blocks.0.mlp.fc.weight")
    seen: dict[str, Any] = {
        "d_vocab": d_vocab,
        "context": context,
        "d_model": d_model,
        "layers": 1 + max(int(match[1]) for key in weights if (match := LAYER.match(key))),
        "d_mlp": 0 if fc is None else fc.shape[0],
        "qkv_bias": has("blocks.0.attn.query.bias"),
        "out_bias": has("blocks.0.attn.proj.bias"),
        "mlp_bias": has("blocks.0.mlp.fc.bias") if fc is not None else ModelConfig.mlp_bias,
        "head_bias": has("head.bias"),
        "tied_head": _untie(layout, weights),
    }
    if has("lnf.weight") or has("lnf.bias"):
        seen["norm"] = "full" if has("lnf.bias") else "weight"
    if parts.heads is not None:
        seen["heads"] = parts.heads
    return seen


def _untie(layout: Layout, weights: dict[str, Tensor]) -> bool:
    """Whether the unembedding is the token embedding; takes the copy away that some projects store."""
    head, token = weights.get("head.weight"), weights["tok.weight"]
    if head is not None and layout is not COURSE and head.shape == token.shape and torch.equal(head, token):
        del weights["head.weight"]
        return True
    return head is None


def _facts(config: ModelConfig, sources: Mapping[str, str]) -> tuple[Fact, ...]:
    """Every field of the config in the order of its definition, with what it was known from."""
    facts = []
    for name, value in asdict(replace(config, score_scale=config.scale)).items():
        facts.append(Fact(name, f"{value:.4g}" if isinstance(value, float) else str(value), sources[name]))
    return tuple(facts)


def _fold_layer_scale(weights: dict[str, Tensor]) -> None:
    for key in weights:
        if (match := LAYER.match(key)) and ".query." in key:
            weights[key] = weights[key] / (int(match[1]) + 1)


def _checked(key: str, value: Tensor) -> Tensor:
    """The weight in single precision and in memory of its own, if it is one and finite."""
    if not value.is_floating_point():
        raise CheckpointError(f"{key} is of type {value.dtype}, expected floating-point weights.")
    value = value.to(torch.float32, copy=True).contiguous()
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
            f"The keys of this checkpoint claim a model of {claimed:,} weights or more, but it holds {held:,}: it is incomplete "
            "(one of several shards?)."
        )


def _check_shapes(weights: Mapping[str, Tensor], parts: Sorted, config: ModelConfig, layout: Layout) -> None:
    with torch.device("meta"):
        expected = GPT(config, seed=None).state_dict()
    if config.tied_head:
        del expected["head.weight"]
    missing, surplus = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    if missing or surplus:
        found = (
            f"{theirs(missing[0], layout)} is missing" if missing else f"{parts.keys[surplus[0]]} has no place in it"
        )
        raise CheckpointError(_unfit(layout, found))
    for key, value in weights.items():
        if value.shape != expected[key].shape:
            raise CheckpointError(
                f"{parts.keys[key]} has shape {list(value.shape)}, expected {list(expected[key].shape)} beside the other weights."
            )


def _unfit(layout: Layout, found: str) -> str:
    return f"This checkpoint does not fit the layout of {layout.name}: {found}."
