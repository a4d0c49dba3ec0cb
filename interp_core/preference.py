"""What it costs to please a reward: best-of-n and exponential tilting, from one pool of samples.

Best-of-n draws n texts and keeps the one of the highest reward. Over the levels of a reward, with probabilities p and
distribution F, it keeps level i with probability F_iⁿ − F_{i−1}ⁿ, exactly, ties broken at random. So one pool serves every n.
The optimum of E[r] − β KL is the reference times exp(r/β) (Korbak et al. 2022), reached here by weighting the same pool; it is
the frontier that no other policy passes, as long as its effective sample size holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
DRAWS = 1000
FEWEST_EFFECTIVE = 100  # samples, below which a tilted pool says little
STRENGTHS = 25  # of tilting
DRAWN = 256  # texts on which diversity is measured


@dataclass(frozen=True, eq=False)
class Levels:
    """The distinct rewards of a pool, and how much of it has each."""

    rewards: Float[ndarray, "level"]  # ascending
    shares: Float[ndarray, "level"]
    level: Int[ndarray, "sample"]  # of each sample


def levels(rewards: Float[ndarray, "sample"]) -> Levels:
    """The distribution of a reward over a pool.

    Raises:
        ValueError: an empty pool, or a reward that is not finite.
    """
    if not len(rewards) or not np.isfinite(rewards).all():
        raise ValueError("rewards must be finite numbers, of one sample or more")
    found, level, counts = np.unique(rewards, return_inverse=True, return_counts=True)
    return Levels(found, counts / len(rewards), level)


def best_of(shares: Float[ndarray, "*draw level"], n: int) -> Float[ndarray, "*draw level"]:
    """The probability that the best of `n` has each level: Fⁿ − F₋ⁿ.

    Raises:
        ValueError: n below 1.
    """
    if n < 1:
        raise ValueError(f"best of {n}: expected 1 or more")
    upper = shares.cumsum(-1).clip(max=1.0)
    lower = upper - shares
    return upper**n - lower.clip(min=0.0) ** n


def divergence(chosen: Float[ndarray, "*draw level"], shares: Float[ndarray, "*draw level"]) -> Float[ndarray, "*draw"]:
    """KL divergence of the chosen levels from the reference's, in nats.

    Within a level nothing is preferred, so this is the divergence between whole texts, too.
    """
    ratio = np.divide(chosen, shares, out=np.ones_like(chosen), where=chosen > 0)
    return np.asarray((chosen * np.log(ratio)).sum(-1))


def bound(n: int) -> float:
    """log n − (n − 1)/n: what best-of-n costs where no two texts have the same reward, and at most otherwise, in nats.

    Beirami et al. 2024, "Theoretical guarantees on the best-of-n alignment policy".
    """
    return float(np.log(n) - (n - 1) / n)


def frontier(rewards: Float[ndarray, "sample"], seed: int, counts: Sequence[int] = COUNTS) -> pd.DataFrame:
    """Best-of-n for every n: n, reward and kl with _low and _high over resamples of the pool, bound.

    Raises:
        ValueError: as `levels`.
    """
    pool = levels(rewards)
    size = len(rewards)
    drawn = np.random.default_rng(seed).multinomial(size, pool.shares, DRAWS) / size  # [draw level]
    rows = []
    for n in counts:
        chosen, again = best_of(pool.shares, n), best_of(drawn, n)
        gain, costs = again @ pool.rewards, divergence(again, drawn)
        (low, high), (kl_low, kl_high) = (np.quantile(values, (0.025, 0.975)) for values in (gain, costs))
        kl = float(divergence(chosen, pool.shares))
        rows.append((n, float(chosen @ pool.rewards), low, high, kl, kl_low, kl_high, bound(n)))
    return pd.DataFrame(rows, columns=["n", "reward", "reward_low", "reward_high", "kl", "kl_low", "kl_high", "bound"])


def tilted_weights(rewards: Float[ndarray, "sample"], beta: float) -> Float[ndarray, "sample"]:
    """Weights of a pool under π_ref · exp(r/β), which sum to one.

    Raises:
        ValueError: β is not positive.
    """
    if beta <= 0:
        raise ValueError(f"beta is {beta}, expected a positive number")
    weights = np.exp((rewards - rewards.max()) / beta)
    return weights / weights.sum()


def tilting(rewards: Float[ndarray, "sample"], steps: int = STRENGTHS) -> pd.DataFrame:
    """The frontier of all policies: beta, reward, kl in nats, effective (sample size), trusted.

    From hardly tilted to as far as the pool carries; rewards of one level only cannot be tilted and give no rows.
    """
    spread = float(rewards.std())
    rows = []
    for beta in spread * np.geomspace(10, 0.05, steps) if spread else ():
        weights = tilted_weights(rewards, float(beta))
        positive = weights[weights > 0]
        effective = 1 / (weights**2).sum()
        kl = (positive * np.log(positive * len(rewards))).sum()
        rows.append(
            (float(beta), float(weights @ rewards), float(kl), float(effective), bool(effective >= FEWEST_EFFECTIVE))
        )
    return pd.DataFrame(rows, columns=["beta", "reward", "kl", "effective", "trusted"])


def weights_of_best(pool: Levels, n: int) -> Float[ndarray, "sample"]:
    """How likely each sample of the pool is the best of n."""
    counts = np.bincount(pool.level)
    return (best_of(pool.shares, n) / counts)[pool.level]


def diversity(
    texts: Sequence[str], log_probabilities: Float[ndarray, "sample"], weights: Float[ndarray, "sample"], seed: int
) -> tuple[float, float]:
    """The price: entropy of a text under the weighted pool, in nats, and the share of distinct trigrams among its texts.

    With q(x) = π_ref(x) · w(x) N the entropy is −Σ w [log π_ref + log(w N)]. Trigrams are of letters, in as many texts drawn by
    the weights whatever they are, so that two choices can be compared.
    """
    kept = weights > 0
    entropy = -(weights[kept] * (log_probabilities[kept] + np.log(weights[kept] * len(weights)))).sum()
    chosen = np.random.default_rng(seed).choice(len(texts), DRAWN, p=weights / weights.sum())
    grams = [texts[i][place : place + 3] for i in chosen for place in range(len(texts[i]) - 2)]
    return float(entropy), len(set(grams)) / max(len(grams), 1)


def overused(preferred: Sequence[str], typical: Sequence[str], size: int = 3, most: int = 20) -> pd.DataFrame:
    """Stretches of letters that preferred texts have more often than typical ones: gram, preferred, typical, z.

    Log-odds with a prior from both sides together, over its standard error (Monroe et al. 2008, "Fightin' words"): it ranks
    neither the rarest nor the commonest first. Counts are of texts that have the stretch, so one text cannot fake a habit.
    """
    sides = [_counts(texts, size) for texts in (preferred, typical)]
    names = sorted(set(sides[0]) | set(sides[1]))
    found = np.array([[side.get(name, 0) for name in names] for side in sides], dtype=float).reshape(2, -1)
    prior = found.sum(0) / max(found.sum(), 1) * 100 + 0.01
    totals = found.sum(1, keepdims=True) + prior.sum()
    odds = np.log(found + prior) - np.log(totals - found - prior)
    z = (odds[0] - odds[1]) / np.sqrt((1 / (found + prior)).sum(0))
    table = pd.DataFrame({"gram": names, "preferred": found[0].astype(int), "typical": found[1].astype(int), "z": z})
    return table.sort_values("z", ascending=False).head(most).reset_index(drop=True)


def _counts(texts: Sequence[str], size: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        for gram in {text[place : place + size] for place in range(len(text) - size + 1)}:
            counts[gram] = counts.get(gram, 0) + 1
    return counts
