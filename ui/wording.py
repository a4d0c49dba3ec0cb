"""Numbers to sentences. Verdicts are computed here from intervals, never typed into a page."""

import pandas as pd

from interp_core.atlas import Labels, Standout
from interp_core.statistics import Interval

FINE = 0.01  # half-widths below are shown with a third digit

# What a head does that scores high, as the end of a sentence that begins with its name and ends with a share.
DOES = {
    "previous_token_score": "looks one back",
    "self_score": "looks at itself",
    "fixed_offset_score": "looks {} back",
    "first_token_score": "looks at the first token",
    "prefix_matching_score": "looks at what followed the same token earlier",
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
    digits = 2 if interval.half_width >= FINE else 3
    return f"{interval.estimate:.{digits}f} ±{interval.half_width:.{digits}f}"


def does(best: Standout) -> str:
    """What the head does, after its name."""
    return DOES[best.score_name].format(best.offset)


def stands_out(best: Standout, control: pd.DataFrame) -> bool:
    """Whether the best head's interval lies above the best that any untrained model reached."""
    return best.score.low > control[best.score_name].max()


def finding(best: Standout, control: pd.DataFrame) -> str:
    """One sentence on the head that stands out, or that none does."""
    if not stands_out(best, control):
        return "No head stands out from those of an untrained model"
    return f"{best.head} {does(best)} {best.score.estimate:.0%} of the time"


def standout_evidence(best: Standout, control: pd.DataFrame) -> str:
    """The finding's interval and its control."""
    return (
        f"{SCORE_NAMES[best.score_name].capitalize()} score {plus_minus(best.score)} (95% interval over {best.windows} "
        f"windows that did not choose this head). In {len(control)} untrained models of the same shape the best head reaches "
        f"{control[best.score_name].max():.2f}."
    )


def atlas_verdict(labels: Labels, best: Standout, control: pd.DataFrame) -> tuple[bool, str]:
    """Whether the model has more named heads than chance, and that in words."""
    most = int(control["named"].max())
    if labels.named.low > most and stands_out(best, control):
        return True, f"{best.head} {does(best)}; no untrained head does"
    if labels.named.estimate > most:
        return False, "some heads have names, but not clearly more than by chance"
    return False, "no more names than in an untrained model"


def ablation_verdict(name: str, effect: Interval, rank: int, total: int, difference: Interval) -> tuple[bool, str]:
    """Whether the model depends on a part, judged by its own interval and by its difference to the median head."""
    if effect.high < 0:
        return False, f"without {name} the loss is lower: on this text it does harm"
    if effect.low <= 0:
        return False, f"no cost of losing {name} can be measured on these windows"
    if difference.low > 0:
        return True, f"the model depends on {name}: more than on its median head (rank {rank} of {total})"
    return False, f"losing {name} costs something, but no more than the median head (rank {rank} of {total})"
