"""Numbers to sentences. Verdicts are computed here from intervals, never typed into a page."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from interp_core.atlas import Labels, Standout
from interp_core.features import Cause
from interp_core.ged import Null, Scores
from interp_core.induction import PRESENT, Circuit
from interp_core.probing import Causal
from interp_core.sae_quality import Quality
from interp_core.statistics import Interval

LOOSE = 0.95  # share of the bound, below which ties have made best-of-n cheaper
NATS, BITS, BITS_OF_TOKENS = "nats", "bits/char", "bits/token"
ALPHA = 0.05
EXACT = 1e-9  # half-width of a number that was not measured
FINE = 0.01  # half-widths below are shown with a third digit

# Where a head that scores high puts its attention.
WHERE = {
    "previous_token_score": "one position back",
    "self_score": "on itself",
    "fixed_offset_score": "{} positions back",
    "first_token_score": "on the first token",
    "prefix_matching_score": "on what followed the same token earlier",
}
SCORE_NAMES = {
    "previous_token_score": "previous token",
    "self_score": "self",
    "fixed_offset_score": "fixed offset",
    "first_token_score": "first token",
    "prefix_matching_score": "prefix matching",
    "entropy": "entropy, nats",
    "relative_entropy": "relative entropy",
    "mean_distance": "mean distance",
    "output_norm": "output norm",
    "output_share": "output share",
}


def plus_minus(interval: Interval) -> str:
    """An estimate with half the width of its interval, to the digits that the interval deserves."""
    if interval.half_width < EXACT:
        return f"{interval.estimate:.3f}"
    digits = 2 if interval.half_width >= FINE else 3
    estimate = round(interval.estimate, digits) + 0.0  # no "-0.000"
    return f"{estimate:.{digits}f} ±{interval.half_width:.{digits}f}"


def duration(seconds: float) -> str:
    """A time as people say it: 40 s, 5 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def rate(steps_a_second: float) -> str:
    """Speed, in the unit that gives a number above one."""
    return f"{steps_a_second:.0f} a second" if steps_a_second >= 3 else f"{60 * steps_a_second:.0f} a minute"


def size(count: float) -> str:
    """Bytes as people say them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def stands_out(best: Standout, control: pd.DataFrame) -> bool:
    """Whether the best head's interval lies above the best that any untrained model reached."""
    return best.score.low > control[best.score_name].max()


def finding(best: Standout, control: pd.DataFrame) -> str:
    """One sentence on the head that stands out, or that none does."""
    if not stands_out(best, control):
        return "No head stands out from those of an untrained model"
    where = WHERE[best.score_name].format(best.offset)
    return f"{best.head} puts {best.score.estimate:.0%} of its attention {where}"


def standout_evidence(best: Standout, control: pd.DataFrame) -> str:
    """The finding's interval and its control."""
    return (
        f"{SCORE_NAMES[best.score_name].capitalize()} score {plus_minus(best.score)} (95% interval over {best.windows} "
        f"windows that did not choose this head). In {len(control)} untrained models of the same shape the best head reaches "
        f"{control[best.score_name].max():.2f}."
    )


def atlas_verdict(labels: Labels, best: Standout, control: pd.DataFrame) -> tuple[bool, str]:
    """Whether the model has more nameable patterns than untrained ones, and that in words."""
    heads, found = len(labels.table), int(labels.named.estimate)
    chance = f"{int(control['named'].sum())} of {heads * len(control)} untrained heads"
    if labels.named.low > control["named"].max() and stands_out(best, control):
        return True, f"{found} of {heads} heads have a nameable pattern; {chance} do"
    return False, f"{found} of {heads} heads have a nameable pattern, not clearly more than {chance}"


def formation_verdict(circuit: Circuit, untrained: Circuit) -> tuple[bool, str, str]:
    """Whether the heads of an induction circuit are there, in words, with their numbers and those of an untrained model.

    Heads are chosen on one half of the sequences and measured on the other.
    """
    found = {}
    for name, made in (("here", circuit), ("untrained", untrained)):
        match = None if made.candidate is None else made.match(made.candidate)
        previous = None if made.feeder is None else made.previous(made.feeder)
        found[name] = (match, previous)
    (match, previous), (chance_match, chance_previous) = found["here"], found["untrained"]
    if match is None or previous is None or chance_match is None or chance_previous is None:
        return False, "one layer has no room for the two heads of an induction circuit", ""
    numbers = (
        f"Best matching head {circuit.candidate} {plus_minus(match)} (untrained {plus_minus(chance_match)}); best previous-token "
        f"head below it {circuit.feeder} {plus_minus(previous)} (untrained {plus_minus(chance_previous)})."
    )
    if match.low > PRESENT and previous.low > PRESENT:
        return (
            True,
            "both heads of an induction circuit are there",
            f"{numbers} Whether they copy is the Induction page's question.",
        )
    if previous.low > PRESENT:
        return False, "a previous-token head, but no matching head: half a circuit", numbers
    return False, f"no matching head fed by a previous-token head (each needs {PRESENT} of its attention)", numbers


def bits_verdict(name: str, over_pairs: Interval, over_mlp: Interval | None) -> tuple[bool, str]:
    """What a GPT is better than, by paired intervals."""
    if over_pairs.low <= 0:
        return False, f"{name} is not clearly better than pair counts"
    if over_mlp is None:
        return True, f"{name} beats pair counts; what three characters can do, the MLP will tell"
    if over_mlp.low > 0:
        return True, f"{name} beats pair counts, and an MLP that sees three characters by {plus_minus(over_mlp)}"
    return False, f"{name} beats pair counts, but not clearly an MLP that sees three characters"


def ged_verdict(names: tuple[str, str], scores: Scores, null: Null) -> tuple[bool, str]:
    """Whether one category varies more than the other along a direction, by what is held out."""
    p_ratio, p_separation = null.p_value(scores)
    apart = p_separation < ALPHA and scores.separation.low > 0
    if p_ratio < ALPHA and scores.ratio.low > 1:
        means = f"the means differ by {scores.separation.estimate:.2f}" if apart else "the means do not clearly differ"
        return True, f"{names[0]}: a direction of larger variance that holds out of sample; along it {means}"
    if apart:
        return (
            True,
            f"no direction of larger variance for {names[0]}, but the means differ along the one that was found",
        )
    return False, f"no direction of larger variance for {names[0]} that holds out of sample"


def probe_verdict(
    name: str, found: Interval, chance: float, p: float, kept: tuple[int, int], concentrated: bool
) -> tuple[bool, str]:
    """Whether a category can be read, by what is held out, and from few neurons or many.

    Args:
        name: of the category.
        found: the figure, held out.
        chance: what it is where nothing can be read.
        p: share of shifted labels that reach as much.
        kept: neurons at the elbow of the path, and all there are.
        concentrated: whether those are few, and better than random ones.
    """
    if found.low <= chance or p >= ALPHA:
        return False, f"{name} cannot be read here with this probe"
    few, total = kept
    if concentrated:
        return (
            True,
            f"{name} can be read, concentrated: {few} of {total} neurons come within a standard error of the best",
        )
    return (
        True,
        f"{name} can be read, distributed: {few} of {total} neurons to come within a standard error of the best",
    )


def surface_verdict(above: Interval) -> str:
    """Whether a probe knows more than the tokens nearby tell."""
    if above.low > 0:
        return "more than the last three tokens tell"
    return "less than the last three tokens tell" if above.high < 0 else "no more than the last three tokens tell"


def causal_verdict(found: Causal) -> tuple[bool, str]:
    """Whether the model needs the neurons that a probe reads."""
    if found.over_random.low <= 0:
        return False, "no loss beyond that of random neurons can be shown at tokens of the category"
    if found.positive.low > found.negative.high:
        return True, "the model loses more than without random neurons, and most at tokens of the category"
    return True, "the model loses more than without random neurons, but not clearly more at tokens of the category"


def sae_verdict(found: Quality, control: float, f1: np.ndarray, chance: np.ndarray) -> tuple[bool, str]:
    """Whether an autoencoder's parts say more than as many others, and more of what has a name than chance does.

    Args:
        found: its quality.
        control: cross-entropy recovered by as many principal components.
        f1: of each feature's best category, held out.
        chance: the same of random directions.
    """
    if found.recovered.low <= control:
        return False, "its features keep no more of the loss than as many principal components"
    named, least = float(np.mean(f1 > np.quantile(chance, 0.95))), 0.05
    if named <= 2 * least:
        return (
            False,
            "it keeps more of the loss than principal components, but its features have no better names than chance",
        )
    return True, f"few features keep the loss; {named:.0%} have a better name than 19 of 20 random directions"


def feature_verdict(found: Cause) -> tuple[bool, str]:
    """Whether the model needs a feature where it fires, and more than others like it."""
    if found.fires.low <= 0:
        return False, "no loss can be measured where it fires and is taken away"
    if len(found.others) and found.fires.low <= float(np.median(found.others)):
        return False, "the model needs it, but not clearly more than most features that fire as often"
    if found.silent.high >= found.fires.low:
        return False, "taking it away costs as much where it does not fire"
    return True, "the model needs it where it fires, more than most features that fire as often"


def ablation_verdict(name: str, effect: Interval, rank: int, total: int, difference: Interval) -> tuple[bool, str]:
    """Whether the model depends on a part, judged by its own interval and by its difference to the median head."""
    if effect.high < 0:
        return False, f"without {name} the loss is lower: on this text it does harm"
    if effect.low <= 0:
        return False, f"no cost of losing {name} can be measured on these windows"
    if difference.low > 0:
        return True, f"the model depends on {name}: more than on its median head (rank {rank} of {total})"
    return False, f"losing {name} costs something, but no more than the median head (rank {rank} of {total})"


def tuning_verdict(
    rank: int,
    low: Mapping[Any, Any],
    full: Mapping[Any, Any] | None,
    control: Mapping[Any, Any] | None,
    needed: int | None,
) -> tuple[bool, str]:
    """Whether a low rank is enough, and whether the full update is of low rank itself.

    Args:
        rank: the smallest that is not clearly worse than the best.
        low: its row: gain_nats with _low and _high.
        full: of all weights, once it is done.
        control: the best of the controls, once there is one.
        needed: directions that hold 90% of the median matrix's full update.
    """
    gain = float(low["gain_nats"])
    if low["gain_nats_low"] <= 0:
        return False, f"rank {rank} gains nothing that can be measured on the second text"
    if full is None or control is None or needed is None:
        return False, f"rank {rank} gains; what it must be compared with is not done yet"
    whole = float(full["gain_nats"])
    gained = f"rank {rank} gains {'more than' if gain > whole else f'{gain / whole:.0%} of what'} all weights do"
    beaten = "" if gain > control["gain_nats"] else f", but {control['variant']} gains as much"
    update = "the full update is low rank, too"
    if needed > rank:
        update = f"the full update is not low rank: 90% of it needs {needed} directions"
    return not beaten, f"{gained}{beaten}; {update}"


def best_of_verdict(row: Mapping[Any, Any], scores: np.ndarray, control: float, levels: int) -> tuple[bool, str]:
    """What the choice buys, and whether ties make the bound loose.

    Args:
        row: of the chosen n: reward, reward_low, kl, bound.
        scores: of the pool.
        control: upper end of the reward of as much choice by shuffled rewards.
        levels: how many distinct rewards there are.
    """
    if levels == 1:
        return False, "all samples have the same reward: there is nothing to choose"
    if row["reward_low"] <= control:
        return False, "no more than choosing by shuffled rewards gives"
    gained, ties = (row["reward"] - scores.mean()) / scores.std(), ""
    if row["bound"] > 0 and row["kl"] < LOOSE * row["bound"]:
        ties = f"; its {levels} levels make it {1 - row['kl'] / row['bound']:.0%} cheaper than the bound"
    return True, f"{gained:+.1f} standard deviations for {row['kl']:.1f} nats{ties}"
