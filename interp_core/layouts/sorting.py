"""The tensors of a file under our names: which layout it is, and what becomes of each of its keys."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from interp_core.layouts.refused import refusal
from interp_core.layouts.tables import LAYOUTS, Layout
from interp_core.pickles import CheckpointError

# Sizes beyond which a file is refused before a model is built from it.
LIMITS = {"d_vocab": 300_000, "context": 8_192, "d_model": 8_192, "heads": 256, "layers": 128, "d_mlp": 65_536}


@dataclass(frozen=True, eq=False)
class Sorted:
    """The tensors under our names; for each, the key that it came from."""

    weights: dict[str, Tensor]
    keys: dict[str, str]
    heads: int | None  # where the file has them apart


def recognise(tensors: Mapping[str, Tensor], beside: Set[str]) -> tuple[Layout, dict[str, Tensor]]:
    """The layout of a state dict, and its tensors without whatever stood before all of their keys.

    Raises:
        CheckpointError: a family that is refused by name, or none that is known.
    """
    refused = refusal(tensors)
    if refused is not None:
        raise CheckpointError(
            f"This is {refused[0]}. It is not read here: it would need {refused[1]}. Expected a GPT with learned positions."
        )
    found = dict(tensors)
    while True:
        for layout in LAYOUTS:
            named = {key.removeprefix(layout.prefix): value for key, value in found.items()}
            if len(named) == len(found) and all(mark in named for mark in layout.marks) and layout.fits(named, beside):
                return layout, named
        heads = {key.split(".", 1)[0] for key in found}
        if len(heads) != 1 or not all("." in key for key in found):
            break
        found = {key.split(".", 1)[1]: value for key, value in found.items()}
    shown, lacks = ", ".join(list(tensors)[:3]), _nearest(found)
    raise CheckpointError(
        f"This checkpoint's keys are laid out as in no project known here: it begins with {shown}{lacks}. Read are: "
        f"{', '.join(layout.name for layout in LAYOUTS)}."
    )


def _nearest(tensors: Mapping[str, Tensor]) -> str:
    """What is missing from the layout that most of the marks belong to."""
    lacking = [[mark for mark in layout.marks if mark not in tensors] for layout in LAYOUTS]
    layout, lacks = min(zip(LAYOUTS, lacking, strict=True), key=lambda pair: len(pair[1]))
    return f", and {lacks[0]} of {layout.name} is missing" if 0 < len(lacks) < len(layout.marks) else ""


@cache
def _patterns(templates: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    groups = {r"\{l\}": r"(?P<l>\d{1,4})", r"\{h\}": r"(?P<h>\d{1,4})", r"\{p\}": r"(?P<p>weight|bias)"}
    found = []
    for template in templates:
        pattern = re.escape(template)
        for written, group in groups.items():
            pattern = pattern.replace(written, group)
        found.append((re.compile(pattern), template))
    return found


def _match(key: str, templates: tuple[str, ...]) -> tuple[str, dict[str, str]] | None:
    """Which template a key fits, and what stands in its places."""
    for pattern, template in _patterns(templates):
        if match := pattern.fullmatch(key):
            return template, match.groupdict()
    return None


def sort(layout: Layout, tensors: Mapping[str, Tensor]) -> Sorted:
    """Every tensor under our name, turned as ours are.

    Raises:
        CheckpointError: a key that is not known, heads that are missing or differ, a mask that is not causal.
    """
    weights: dict[str, Tensor] = {}
    keys: dict[str, str] = {}
    apart: dict[str, dict[int, Tensor]] = {}
    shapes: set[tuple[int, int]] = set()
    for key, value in tensors.items():
        found = _match(key, tuple(layout.keys))
        if found is None:
            _check_buffer(layout, key, value)
            continue
        template, places = found
        ours = layout.keys[template].replace("{l}", str(int(places.get("l", 0)))).replace("{p}", places.get("p", ""))
        if "h" in places:
            heads = apart.setdefault(ours, {})
            if heads.setdefault(int(places["h"]), value) is not value:
                raise CheckpointError(f"{key} is there twice.")
        elif ours in weights:
            raise CheckpointError(f"{key} is there twice.")
        else:
            if value.ndim == 3:  # [head d_model d_head], and the output projection [head d_head d_model]
                shapes.add((value.shape[0], value.shape[1 if ours.endswith("proj.weight") else 2]))
            weights[ours] = _turned(layout, ours, key, value)
        keys[ours] = key
    if len(shapes) > 1:
        raise CheckpointError(f"Its matrices have heads of different number or width: {sorted(shapes)}.")
    joined = _join(apart, weights, keys)
    for ours in [name for name in weights if ".qkv." in name]:
        _split(ours, weights, keys)
    return Sorted(weights, keys, joined or next((count for count, _ in shapes), None))


def _turned(layout: Layout, ours: str, key: str, value: Tensor) -> Tensor:
    for part, turn in layout.turned.items():
        if ours.endswith(part):
            try:
                return turn(value)
            except (IndexError, RuntimeError) as error:
                raise CheckpointError(f"{key} has {value.ndim} dimensions, which {layout.name} never has.") from error
    return value


def _join(apart: Mapping[str, Mapping[int, Tensor]], weights: dict[str, Tensor], keys: Mapping[str, str]) -> int:
    """One matrix for all heads of a layer, in place of one for each; returns how many heads there are."""
    count = max((1 + max(parts) for parts in apart.values()), default=0)
    if count > LIMITS["heads"]:
        raise CheckpointError(f"This checkpoint has heads = {count:,}, more than the {LIMITS['heads']:,} read here.")
    for ours, parts in apart.items():
        missing = set(range(count)) - set(parts)
        if missing:
            raise CheckpointError(f"{keys[ours]} lacks head {min(missing)} of {count}: the checkpoint is incomplete.")
        if len({part.shape for part in parts.values()}) != 1 or not parts[0].ndim:
            raise CheckpointError(f"The heads of {keys[ours]} differ in shape, expected {list(parts[0].shape)} each.")
        weights[ours] = torch.cat([parts[head] for head in range(count)])
    return count


def _split(ours: str, weights: dict[str, Tensor], keys: dict[str, str]) -> None:
    """Query, key and value, which a fused matrix holds one after the other."""
    fused, key = weights.pop(ours), keys.pop(ours)
    if fused.ndim == 0 or fused.shape[0] % 3:
        raise CheckpointError(f"{key} has shape {list(fused.shape)}, expected queries, keys and values of one size.")
    for name, part in zip(("query", "key", "value"), fused.chunk(3), strict=True):
        weights[ours.replace("qkv", name)], keys[ours.replace("qkv", name)] = part, key


def _check_buffer(layout: Layout, key: str, value: Tensor) -> None:
    """Consumes what is no weight: a mask that is causal, a constant. Anything else is named."""
    if _match(key, layout.constants) and value.numel() == 1:
        return
    if not _match(key, layout.masks):
        raise CheckpointError(f"This checkpoint does not fit the layout of {layout.name}: {key} is not known.")
    square = value.squeeze().bool()
    if square.ndim == 2 and square.shape[0] == square.shape[1]:
        causal = torch.ones_like(square).tril()
        if torch.equal(square, causal) or torch.equal(square, ~causal):
            return
    elif value.numel() == 1:
        return
    raise CheckpointError(
        f"{key} is not a causal mask: this model does not look at all earlier tokens and no later ones."
    )


def theirs(ours: str, layout: Layout) -> str:
    """What a layout calls one of our weights."""
    for theirs, template in layout.keys.items():
        name = re.sub(r"\.(query|key|value)\.", ".qkv.", ours) if ".qkv." in template else ours
        found = _match(name, (template,)) if "{" in template else None
        if found or ours == template:
            places = {"l": "0", "p": "weight", "h": "0", **(found[1] if found else {})}
            return theirs.format(**places)
    return ours
