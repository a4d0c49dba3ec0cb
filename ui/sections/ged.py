"""The GED page's figures: projections, spectrum, the trap of few samples, layers, what the component says."""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st
import torch

from interp_core import components, ged, head_scores
from interp_core.ged import Decomposition, Null, Scores
from interp_core.statistics import shift_labels
from ui import cache, session, wording
from ui.charts import ged as charts
from ui.charts import shared
from ui.progress import Progress, with_progress
from ui.sections import labelled as choice
from ui.sections.labelled import Labelled

SHRINKAGES = (
    0.001,
    0.01,
    0.05,
    0.1,
    0.3,
)  # none at all has no answer where fewer tokens occur than there are dimensions
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)
AGREE = 0.8  # of the folds, below which a component is not interpreted
IDENTITY = 0.8  # share of variance by token alone, from which a component is called token identity
ENDS = 6  # contexts at each end of the component
RATIO, SEPARATION = "variance ratio", "separation of means"
Chart = alt.Chart | alt.LayerChart | None


@dataclass(frozen=True, eq=False)
class Study:
    """One category at one site: every measurement of the page, each made once and cached."""

    labelled: Labelled
    shrinkage: float

    def scores(self, method: ged.Method = "GED") -> Scores:
        """Out-of-fold projections by one method."""
        seed = self.labelled.bench.seed
        return cache.measured(
            f"GED scores {self._key} {method}", lambda: ged.cross_validate(*self._given, self.shrinkage, method, seed)
        )

    def decomposition(self) -> Decomposition:
        """All components, of all rows."""

        def work() -> Decomposition:
            rows, positive, _ = self._given
            return ged.decompose(rows[positive], rows[~positive], self.shrinkage)

        return cache.measured(f"GED components {self._key}", work)

    def null(self, method: ged.Method = "GED") -> Null:
        """What shifted labels give."""
        shrinkage, seed = self.shrinkage, self.labelled.bench.seed

        def work(tell: Progress) -> Null:
            return ged.null(*self._given, (shrinkage,), seed=seed, method=method, progress=tell)[shrinkage]

        return with_progress(
            f"Shifting labels at {self.labelled.site}",
            lambda tell: cache.measured(f"GED null {self._key} {method}", lambda: work(tell)),
        )

    def by_size(self) -> pd.DataFrame:
        """The trap, and the same with labels that say nothing."""
        rows, positive, windows = self._given

        def measure(name: str, labels: np.ndarray, methods: tuple[ged.Method, ...]) -> pd.DataFrame:
            def work(tell: Progress) -> pd.DataFrame:
                given = (rows, labels, windows)
                return ged.by_sample_size(*given, methods=methods, shrinkage=self.shrinkage, progress=tell)

            return with_progress(
                "Finding directions from few samples",
                lambda tell: cache.measured(f"GED sizes {self._key} {name}", lambda: work(tell)),
            )

        shifted = measure("shifted", shift_labels(positive, windows, self.labelled.bench.seed), ("GED",))
        return pd.concat([measure("", positive, ged.METHODS), shifted.assign(method=charts.SHIFTED)])

    def at(self, site: str) -> "Study":
        """The same question at another site."""
        return Study(self.labelled.at(site), self.shrinkage)

    @property
    def _key(self) -> str:
        return f"{self.labelled.key} {self.shrinkage}"

    @property
    def _given(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, windows, _ = self.labelled.rows()
        return rows, self.labelled.positive, windows


def claim(study: Study) -> None:
    """Both figures held out, each with its null, and the verdict."""
    scores, null = study.scores(), study.null()
    p_ratio, p_separation = null.p_value(scores)
    ratio, separation, chance = st.columns(3)
    ratio.metric(
        f"{RATIO}, held out (p = {p_ratio:.2f})", wording.plus_minus(scores.ratio),
        help="Variance of the category's projections over the shrunk one of the compared tokens': what GED maximises. In sample: "
        f"{scores.ratio_in_sample:.2f}.",
    )  # fmt: skip
    separation.metric(
        f"{SEPARATION}, held out (p = {p_separation:.2f})", wording.plus_minus(scores.separation),
        help="Difference of means over the sum of standard deviations: what GED does not maximise.",
    )  # fmt: skip
    low, high = np.quantile(null.ratios, [0.025, 0.975])
    chance.metric(
        f"control: ratio of {len(null.ratios)} shifted labels", f"{null.ratios.mean():.2f} ({low:.2f} to {high:.2f})",
        help=f"Mean, and the range of 95%. In sample they reach {null.ratios_in_sample.mean():.2f}: that much is found where "
        f"nothing is. Their separation of means: {_ends(null.separations)}.",
    )  # fmt: skip
    good, words = wording.ged_verdict(study.labelled.names, scores, null)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.badge(
            words, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
        )
        inside = f"ratio {scores.ratio_in_sample:.1f}, separation {scores.separation_in_sample:.2f}"
        st.caption(f"In sample: {inside}. Folds agree to {scores.agreement:.2f}.", width="stretch")


def _ends(values: np.ndarray) -> str:
    return " to ".join(f"{end:.2f}" for end in np.quantile(values, [0.025, 0.975]))


def projections(study: Study) -> Chart:
    """Both categories along the top component."""
    title = "projection, in standard deviations of the compared tokens"
    chart = shared.densities(
        study.scores().values, study.labelled.positive, study.labelled.names, title, charts.HEIGHT, zero=True
    )
    st.altair_chart(chart, alt="Densities of the held-out projections of both categories.")
    st.caption(
        "Every token on the direction that was found without its fifth of the text. GED looks for a difference in *width*; a "
        "difference in *place* comes as it may."
    )
    return chart


def spectrum(study: Study) -> Chart:
    """The ratios of all components against those of shifted labels."""
    found, null = study.decomposition(), study.null()
    count = null.spectra.shape[1]
    low, high = np.quantile(null.spectra, [0.025, 0.975], axis=0)
    table = pd.DataFrame({"component": range(1, count + 1), "ratio": found.ratios[:count], "low": low, "high": high})
    chart = charts.spectrum(table)
    st.altair_chart(chart, alt="Variance ratio of each component in sample, with the band of shifted labels.")
    condition = "no inverse" if found.condition_before > 1e12 else f"condition number {found.condition_before:,.0f}"
    constant = f" {len(found.constant)} dimensions do not vary and are left out." if len(found.constant) else ""
    st.caption(
        "Points above the grey band (95% of shifted labels, in sample as well) are more than chance, each taken by itself. "
        f"The compared tokens' covariance has {condition} before and {found.condition_after:,.0f} after a shrinkage of "
        f"{study.shrinkage}.{constant}"
    )
    return chart


def trap(study: Study) -> Chart:
    """In sample against held out as the samples get fewer."""
    table = study.by_size()
    if table.empty:
        st.info("Too few tokens of one category to take fewer of them: read more tokens.")
        return None
    sizes = [f"{size}" for size in sorted(table["size"].unique())]
    left, right = st.columns(2)
    session.keep_choice(session.SAMPLES, sizes)
    with left:
        size = int(
            str(st.select_slider("Samples of each category", sizes, sizes[0], key=session.SAMPLES, bind="query-params"))
        )
    with right:
        figure = choose_figure()
    stem = "ratio" if figure == RATIO else "separation"
    methods = ["GED", charts.SHIFTED] if figure == RATIO else [*ged.METHODS, charts.SHIFTED]
    shown = _quantiles(table[table["method"].isin(methods)], stem)
    chart = charts.trap(shown, figure, size, study.labelled.rows()[0].shape[1])
    st.altair_chart(chart, alt="In-sample and held-out figures against the number of samples.")
    looked = "GED" if figure == RATIO else "LDA"
    at = shown[(shown["size"] == size) & (shown["method"] == looked)].set_index("where")["value"]
    other = (
        "shifted labels look as good in sample"
        if figure == RATIO
        else "GED does not look for it, so its own need not move"
    )
    st.caption(
        f"From **{size}** samples {looked}'s {figure} is **{at['in sample']:.1f}** in sample and **{at['held out']:.2f}** on the "
        f"other half of the text (medians of ten draws; bands: the middle eight); {other}."
    )
    return chart


def _quantiles(table: pd.DataFrame, stem: str) -> pd.DataFrame:
    """Median and the middle eight of ten draws, in sample and held out."""
    parts = []
    for where, column in (("in sample", f"{stem}_in"), ("held out", f"{stem}_out")):
        values = table.groupby(["size", "method"])[column]
        ends = {name: values.quantile(share) for name, share in (("low", 0.1), ("value", 0.5), ("high", 0.9))}
        parts.append(pd.DataFrame(ends).reset_index().assign(where=where))
    return pd.concat(parts)


def choose_figure() -> str:
    """The variance ratio or the separation of means."""
    chosen = st.segmented_control(
        "Figure", [RATIO, SEPARATION], default=RATIO, key=session.FIGURE, bind="query-params", required=True
    )
    return chosen or RATIO


def layers(study: Study) -> Chart:
    """The figure at every layer."""
    kind = study.labelled.site.split(".")[0].replace("embed", "resid_post")
    figure = choose_figure()
    rows = []
    for site in choice.sites(study.labelled.bench, kind):
        here = study.at(site)
        scores, null = here.scores(), here.null()
        value, chance = (scores.ratio, null.ratios) if figure == RATIO else (scores.separation, null.separations)
        low, high = np.quantile(chance, [0.025, 0.975])
        rows.append((site, value.estimate, value.low, value.high, low, high))
    table = pd.DataFrame(rows, columns=["site", "value", "low", "high", "null_low", "null_high"])
    chart = charts.profile(table, f"{figure}, held out")
    st.altair_chart(chart, alt=f"{figure} at every layer with the band of shifted labels.")
    st.caption(
        "Each point with its 95% interval over windows; grey: 95% of shifted labels. Every layer chooses its own direction."
    )
    return chart


def meaning(study: Study) -> Chart:
    """Tokens and contexts at both ends, logit effects, and whether the token alone explains it."""
    scores, labelled = study.scores(), study.labelled
    rows, windows, tokens = labelled.rows()
    if scores.agreement < AGREE:
        st.warning(
            f"The folds found different directions (agreement {scores.agreement:.2f}, below {AGREE}): there is no one component "
            "to interpret. More tokens or more shrinkage may help."
        )
    share = components.token_share(scores.values, tokens, windows)
    st.markdown(
        f"**{share.estimate:.0%}** ({share.low:.0%} to {share.high:.0%}) of the variance along the component is explained by "
        "which token it is"
        + (
            ": this is *token identity*, and a lookup table would show the same."
            if share.low > IDENTITY
            else "; the rest is context, position and noise."
        )
    )
    left, right = st.columns(2)
    order = np.argsort(scores.values)
    for place, name, which in ((left, "highest", order[::-1][:ENDS]), (right, "lowest", order[:ENDS])):
        place.caption(f"The {name} projections (the token in brackets)")
        place.dataframe(choice.contexts(labelled, scores.values, which, "projection"), hide_index=True, row_height=28)
    if labelled.site.split(".")[0] not in ("embed", "resid_post", "attn_out"):
        st.caption("Logit effects are shown for the residual stream and what attention writes into it.")
        return None
    model, label = labelled.bench.checkpoint.model, labelled.bench.checkpoint.tokenizer.label
    patterns = np.stack([components.forward_pattern(rows, w) for w in scores.directions])
    effects = np.stack([head_scores.direct_logits(model, torch.from_numpy(p).float()).numpy() for p in patterns])
    mean = effects.mean(0)
    ends = np.argsort(mean)[[*range(-1, -ENDS - 1, -1), *range(ENDS - 1, -1, -1)]]
    table = {"token": [label(int(t)) for t in ends], "effect": mean[ends]}
    table |= {"low": effects.min(0)[ends], "high": effects.max(0)[ends]}
    chart = shared.logits(pd.DataFrame(table), "component", charts.HEIGHT)
    st.altair_chart(chart, alt="Tokens whose logits the component raises and lowers most.")
    st.caption(
        "The forward pattern (what the component looks like in the activations, Haufe et al. 2014) through the final norm's gain "
        "and the unembedding: the direct path only, later layers are ignored. Lines: the range of the five folds' directions."
    )
    return chart


VIEWS: dict[str, Callable[[Study], Chart]] = {
    "projections": projections, "spectrum": spectrum, "the trap": trap, "layers": layers, "meaning": meaning,
}  # fmt: skip


def methods(study: Study) -> pd.DataFrame:
    """GED beside the other directions, on the same folds, each against its own null."""
    rows = []
    for method in ged.METHODS:
        found, null = study.scores(method), study.null(method)
        for name, value, inside, p in zip(
            ("ratio", "separation"), (found.ratio, found.separation), (found.ratio_in_sample, found.separation_in_sample),
            null.p_value(found), strict=True,
        ):  # fmt: skip
            rows.append((method, name, wording.plus_minus(value), round(p, 2), f"{inside:.2f}"))
    return pd.DataFrame(rows, columns=["direction", "figure", "held out", "p", "in sample"])
