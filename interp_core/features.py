"""What the features of an autoencoder do on a text: when they fire, what explains it, and what the model does with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csc_matrix, vstack
from torch import Tensor

from interp_core.model import GPT, Edit, forward, token_losses
from interp_core.sae import SparseAutoencoder
from interp_core.statistics import Interval, interval

THRESHOLDS = (0.0, 0.25, 0.5)  # of a feature's largest activation: from there it counts as firing
RANDOM = 256  # directions of the control
ALIKE = 10  # features of about the same density that a feature is compared with
BATCH_TOKENS = 4096
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Fired:
    """The activations of all features on windows; rows are positions, windows one after the other."""

    codes: csc_matrix  # [row feature]
    length: int  # positions of a window

    @property
    def density(self) -> Float[ndarray, "feature"]:
        """Share of the tokens at which each feature fires."""
        return np.diff(self.codes.indptr) / self.codes.shape[0]

    @property
    def largest(self) -> Float[ndarray, "feature"]:
        """Largest activation of each feature."""
        return self.codes.max(0).toarray()[0].astype(float)

    def of(self, feature: int) -> Float[ndarray, "row"]:
        """The activations of one feature."""
        return self.codes[:, [feature]].toarray()[:, 0]


@torch.no_grad()
def fire(
    model: GPT,
    sae: SparseAutoencoder,
    windows: Int[Tensor, "window pos"],
    site: str,
    progress: Progress | None = None,
) -> Fired:
    """Reads windows."""
    parts, batch = [], max(1, BATCH_TOKENS // windows.shape[1])
    for done, some in enumerate(windows.split(batch)):
        values = forward(model, some, taps=(site,), stop_early=True)[site].flatten(2).flatten(0, 1)
        parts.append(csc_matrix(sae.encode(values).numpy()))
        if progress:
            progress(min(1.0, (done + 1) * batch / len(windows)))
    return Fired(csc_matrix(vstack(parts)), windows.shape[1])


def explain(fired: Fired, labels: Mapping[str, Bool[ndarray, "row"]]) -> pd.DataFrame:
    """The category that explains each feature best: chosen on the first half of the windows, reported on the second.

    A feature counts as firing from one of `THRESHOLDS` on, chosen along with the category. Columns: explanation, f1, precision,
    recall, from_share (the threshold, of the largest activation); empty where a feature fires in neither half or no category
    fits.
    """
    half = len(next(iter(labels.values()))) // fired.length // 2 * fired.length
    names, truth = list(labels), np.stack(list(labels.values()), 1).astype(np.float32)  # [row category]
    first, second = fired.codes[:half], fired.codes[half:]
    largest = np.asarray(first.max(0).todense())[0]
    best, chosen = np.zeros(first.shape[1]), np.zeros((2, first.shape[1]), dtype=int)
    for at, share in enumerate(THRESHOLDS):
        f1 = _overlap(first, truth[:half], share * largest)[0]  # [category feature]
        top = f1.argmax(0)
        better = f1.max(0) > best
        best = np.where(better, f1.max(0), best)
        chosen[:, better] = np.stack([np.full(len(top), at), top])[:, better]
    found = np.zeros((3, first.shape[1]))
    for at, share in enumerate(THRESHOLDS):
        here = chosen[0] == at
        figures = np.stack(_overlap(second, truth[half:], share * largest))  # [figure category feature]
        found[:, here] = figures[:, chosen[1], np.arange(first.shape[1])][:, here]
    seen = best > 0
    return pd.DataFrame(
        {
            "explanation": [names[c] if s else "" for c, s in zip(chosen[1], seen, strict=True)],
            "f1": np.where(seen, found[0], 0.0),
            "precision": np.where(seen, found[1], 0.0),
            "recall": np.where(seen, found[2], 0.0),
            "from_share": np.array(THRESHOLDS)[chosen[0]],
        }
    )


def random_features(
    rows: Float[ndarray, "row d"], densities: Float[ndarray, "feature"], length: int, seed: int = 0
) -> Fired:
    """The control: random directions that fire as seldom as features do, from a threshold of their own on."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(rows.shape[1], RANDOM))
    along = (rows - rows.mean(0)) @ (directions / np.linalg.norm(directions, axis=0))
    kept = rng.choice(densities[densities > 0], RANDOM)
    least = np.array([np.quantile(column, 1 - share) for column, share in zip(along.T, kept, strict=True)])
    return Fired(csc_matrix(np.maximum(along - least, 0).astype(np.float32)), length)


def examples(values: Float[ndarray, "row"], bands: int, each: int, seed: int = 0) -> list[Int[ndarray, "example"]]:
    """Rows to look at: the highest activations first, then some of every band of them, down to the faintest.

    The top alone flatters a feature: what it does at most of the tokens where it fires may be something else.
    """
    rows = np.flatnonzero(values > 0)
    ordered = rows[np.argsort(-values[rows], kind="stable")]
    rng, found = np.random.default_rng(seed), [ordered[:each]]
    for part in np.array_split(ordered, bands):
        found.append(part[np.sort(rng.permutation(len(part))[:each])])
    return found


def nearest(sae: SparseAutoencoder, feature: int, count: int) -> pd.DataFrame:
    """The features whose directions are most alike. Columns: feature, cosine."""
    cosines = sae.decoder.detach() @ sae.decoder.detach()[feature]
    cosines[feature] = -torch.inf
    top = cosines.topk(min(count, len(cosines) - 1))
    return pd.DataFrame({"feature": top.indices.numpy(), "cosine": top.values.double().numpy()})


@dataclass(frozen=True, eq=False)
class Cause:
    """Loss that a model adds without a feature, where it fires and where it does not. Nats."""

    fires: Interval
    silent: Interval
    others: Float[ndarray, "other"]  # without other features of about the same density, where those fire


@torch.no_grad()
def ablate(
    model: GPT,
    sae: SparseAutoencoder,
    windows: Int[Tensor, "window pos_plus_1"],
    site: str,
    feature: int,
    fired: Fired,
    seed: int = 0,
    progress: Progress | None = None,
) -> Cause:
    """What a feature is good for: the loss that is added when only its part of the site is taken away.

    Args:
        model: the weights.
        sae: the dictionary.
        windows: those on which it `fired`, each with one more token.
        site: where.
        feature: which.
        fired: on these windows.
        seed: of the bootstrap.
        progress: told how far it is.

    Raises:
        ValueError: it fires in fewer than two of the windows.
    """
    if (fired.of(feature).reshape(len(windows), -1) > 0).any(1).sum() < 2:
        raise ValueError(f"feature {feature} fires in fewer than two of these windows: read more tokens")
    intact = token_losses(model, windows)
    names = [feature, *alike(fired, feature)]
    effects = []
    for done, name in enumerate(names):
        on = fired.of(name).reshape(len(windows), -1) > 0
        added = (token_losses(model, windows, {site: without(sae, name)}) - intact).double().numpy()
        effects.append((on, added))
        if progress:
            progress((done + 1) / len(names))
    (on, added), *rest = effects
    both = on.any(1) & ~on.all(1)
    fires, silent = (
        interval((added * mask).sum(1)[both] / mask.sum(1)[both], seed)
        for mask in (on.astype(float), (~on).astype(float))
    )
    return Cause(fires, silent, np.array([loss[where].mean() for where, loss in rest]))


def alike(fired: Fired, feature: int) -> list[int]:
    """Features of about the same density as this one, those that fire in few windows left out."""
    density = fired.density
    apart = np.abs(np.log(np.maximum(density, 1e-12)) - np.log(max(density[feature], 1e-12)))
    apart[density == 0] = np.inf
    apart[feature] = np.inf
    order = np.argsort(apart, kind="stable")[:ALIKE]
    return [int(name) for name in order if np.isfinite(apart[name])]


def without(sae: SparseAutoencoder, feature: int) -> Edit:
    """An edit of the site: takes a feature's part away and leaves the rest, and what the autoencoder misses, as it is."""

    def edit(x: Tensor) -> Tensor:
        flat = x.flatten(2).flatten(0, 1)
        return (flat - sae.encode(flat)[:, [feature]] * sae.decoder[feature]).view_as(x)

    return edit


def steer(sae: SparseAutoencoder, feature: int, amount: float) -> Edit:
    """An edit of the site: adds an activation of a feature everywhere, in the site's units."""
    return lambda x: x + (amount * sae.decoder[feature].detach()).view(x.shape[2:])


def _overlap(
    codes: csc_matrix, truth: Float[ndarray, "row category"], least: Float[ndarray, "feature"]
) -> tuple[ndarray, ndarray, ndarray]:
    """F1, precision and recall of every feature, firing above `least`, for every category [category feature]."""
    columns = np.repeat(np.arange(codes.shape[1]), np.diff(codes.indptr))
    on = csc_matrix(((codes.data > least[columns]).astype(np.float32), codes.indices, codes.indptr), shape=codes.shape)
    hits = (on.T @ truth).T
    fires, belong = np.asarray(on.sum(0))[0], truth.sum(0)[:, None]
    return (
        2 * hits / np.maximum(fires + belong, 1), hits / np.maximum(fires, 1), hits / np.maximum(belong, 1),
    )  # fmt: skip
