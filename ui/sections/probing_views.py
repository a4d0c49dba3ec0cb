"""The Probing page's pictures: sparsity, controls, stable neurons, layers, what the model loses, one neuron."""

from collections.abc import Callable

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from interp_core import probing
from interp_core.probing import Probes
from interp_core.stability_selection import Subsampling
from ui import session, wording
from ui.charts import probing as charts
from ui.charts import shared
from ui.charts.probing import MEANS, PROBE, RANDOM, SHIFTED, SURFACE, UNTRAINED
from ui.sections import labelled as choice
from ui.sections.probing import CONTROLS, Study

THRESHOLD = 0.8  # of the subsamples
SUBSAMPLES, HALF, MORE = 100, "half of the text", "0.7 of it"
SHARES = {HALF: 0.5, MORE: 0.7}
SHOWN = 40  # neurons in the figure of frequencies
ENDS = 6  # contexts at each end of a neuron
Chart = alt.Chart | alt.LayerChart | None


def sparsity(study: Study) -> Chart:
    """The path, with neurons that were chosen otherwise."""
    probes, others = study.probes(), study.others()
    parts = [_of_path(study, probes, PROBE)]
    for name, chosen in ((MEANS, "mean difference"), (RANDOM, "random")):
        parts.append(_named(study, others[others["chosen"] == chosen], name))
    best = probing.elbow(probes.table, study.figure)
    marks = {"elbow": int(probes.neurons[best]), "shown above": int(probes.neurons[study.strength])}
    chart = charts.sparsity(pd.concat(parts), study.figure, {name: at for name, at in marks.items() if at})
    st.altair_chart(chart, alt=f"{study.figure} against the number of neurons that a probe reads.")
    st.caption(
        "Left: few neurons. Bands: 95% over windows; grey: the range of five random choices. *Elbow*: the fewest within one "
        "standard error of the best. Every choice is made without the fold that judges it."
    )
    return chart


def controls(study: Study) -> Chart:
    """The path beside those of the controls."""
    probes, null = study.probes(), study.null().figures[study.figure]
    parts = [_of_path(study, probes, PROBE)]
    for name in CONTROLS:
        control = study.control(name)
        if not isinstance(control, str):
            parts.append(_of_path(study, control, name))
    shifted = {"value": null.mean(0), "low": null.min(0), "high": null.max(0), "neurons": probes.neurons}
    parts.append(pd.DataFrame(shifted).assign(name=SHIFTED).query("neurons > 0"))
    marks = {"shown above": int(probes.neurons[study.strength])}
    chart = charts.sparsity(pd.concat(parts), study.figure, {k: v for k, v in marks.items() if v}, "inputs")
    st.altair_chart(chart, alt=f"{study.figure} of the probe and of its controls.")
    st.caption(
        "What a probe must beat. *Control task*: random labels of token types, learned by heart. *Surface*: the last three "
        "tokens and the position, without a model; its inputs are those. *Shifted labels*: the range of twenty."
    )
    return chart


def _of_path(study: Study, probes: Probes, name: str) -> pd.DataFrame:
    return _named(study, probes.table[probes.neurons > 0], name)


def _named(study: Study, table: pd.DataFrame, name: str) -> pd.DataFrame:
    column = probing.column(study.figure)
    ends = {column: "value", f"{column}_low": "low", f"{column}_high": "high"}
    return table[["neurons", *ends]].rename(columns=ends).assign(name=name)


def _subsampling(study: Study) -> tuple[Subsampling, float]:
    """The controls of stability selection."""
    first, second, third = st.columns([3, 2, 2], vertical_alignment="bottom")
    with first:
        threshold = st.slider(
            "Kept by at least", 0.5, 1.0, THRESHOLD, 0.05, key=session.STABLE, bind="query-params",
            help="Share of the subsamples whose probe keeps a neuron.",
        )  # fmt: skip
    with second:
        session.keep_choice(session.SHARE, [*SHARES])
        share = st.radio("Subsamples", [*SHARES], key=session.SHARE, bind="query-params") or HALF
    with third:
        pairs = st.toggle(
            "Pairs", key=session.PAIRS, bind="query-params", disabled=share != HALF,
            help="Complementary pairs: both halves of each random split (Shah & Samworth 2013).",
        )  # fmt: skip
    paired = bool(pairs) and share == HALF
    return Subsampling(SUBSAMPLES, SHARES[share], paired, study.labelled.bench.seed), float(threshold)


def stability(study: Study) -> Chart:
    """How often each neuron is kept."""
    how, threshold = _subsampling(study)
    found, place = study.stability(how), study.strength
    selected, bound = found.selected(place, threshold), found.false_bound(place, threshold)
    table = frequencies(study, how)
    chart = charts.stability(table.head(SHOWN), threshold)
    st.altair_chart(
        chart,
        key="frequencies",
        on_select=lambda: session.take_neuron("frequencies"),
        selection_mode="picked",
        alt="Share of subsamples that keep each neuron.",
    )
    kept = f"a subsample keeps {found.kept[place]:.1f} of {len(table)} on average"
    if not len(selected):
        st.info(
            f"No neuron is kept by {threshold:.0%} of the subsamples: {kept}, and not the same ones. Move *Sparsity* to the "
            "right or the threshold down; if neither helps, several neurons tell the same, and each subsample takes another."
        )
        return chart
    if bound is None:
        says = "No bound on false ones: it needs half of the text in each subsample and a threshold above 0.5"
    elif bound >= len(selected):
        says = f"Up to {bound:.1f} of these may be false (Meinshausen-Bühlmann): **the bound says nothing here**"
    else:
        says = f"Of these at most **{bound:.1f}** are expected to be false (Meinshausen-Bühlmann)"
    st.caption(
        f"**{len(selected)}** neurons are kept by {threshold:.0%} of the subsamples; {kept}. {says}. Click a bar."
    )
    return chart


def frequencies(study: Study, how: Subsampling) -> pd.DataFrame:
    """All neurons, the most frequently kept first. Columns: neuron, frequency, weight."""
    found, weights = study.stability(how), study.probes().weights[study.strength]
    table = pd.DataFrame({"frequency": found.frequencies[study.strength], "weight": weights})
    table.insert(0, "neuron", range(len(table)))
    size = table["weight"].abs()
    return table.assign(size=size).sort_values(["frequency", "size"], ascending=False).drop(columns="size")


def layers(study: Study) -> Chart:
    """The same probe at every layer, in this model and an untrained one."""
    kind, rows = study.labelled.site.split(".")[0].replace("embed", "resid_post"), []
    for site in choice.sites(study.labelled.bench, kind):
        here = study.at(site)
        for name, rival in (
            (PROBE, (here.probes(), study.strength)),
            (UNTRAINED, here.rival(UNTRAINED)),
            (SURFACE, study.rival(SURFACE)),
        ):
            if not isinstance(rival, str):
                found = rival[0].judged[rival[1]].figure(study.figure)
                rows.append((site, name, found.estimate, found.low, found.high))
    chart = charts.layers(pd.DataFrame(rows, columns=["site", "name", "value", "low", "high"]), study.figure)
    st.altair_chart(chart, alt=f"{study.figure} at every layer.")
    st.caption(
        f"The same probe (C = {probing.STRENGTHS[study.strength]:.2g}) at every layer, with 95% intervals over windows. What the "
        "trained model has and the untrained one has not, it has learned; what nearby tokens tell needs no model."
    )
    return chart


def causal(study: Study) -> Chart:
    """What the model loses without the stable neurons."""
    how, threshold = _subsampling(study)
    selected = tuple(int(n) for n in study.stability(how).selected(study.strength, threshold))
    if not selected:
        st.info(f"No neuron is kept by {threshold:.0%} of the subsamples: see *stability*.")
        return None
    found = study.causal(selected)
    good, words = wording.causal_verdict(found)
    st.badge(
        words, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
    )
    names = study.labelled.names
    parts = [(names[0], found.positive), (names[1], found.negative)]
    table = pd.DataFrame(
        [(name, v.estimate, v.low, v.high) for name, v in parts], columns=["where", "value", "low", "high"]
    )
    random = pd.DataFrame(found.random, columns=list(names)).melt(var_name="where", value_name="value")
    chart = shared.effects(table, random, charts.HEIGHT - 90)
    st.altair_chart(chart, alt="Loss added without the stable neurons, beside random ones.")
    st.caption(
        f"Blue: the {len(selected)} neurons kept by {threshold:.0%} of the subsamples are put to their means while the model "
        f"guesses what comes next: loss added, 95% over windows. Grey: {len(found.random)} random sets of as many. At "
        f"{names[0]}, {wording.plus_minus(found.over_random)} nats more than those."
    )
    return chart


def neuron(study: Study) -> Chart:
    """What one neuron holds at the tokens of both classes, and the contexts at its ends."""
    order = np.argsort(-np.abs(study.probes().weights[study.strength]))
    options = [str(n) for n in order]
    session.default_to(session.NEURON, options, options[0])
    chosen = int(st.selectbox("Neuron", options, key=session.NEURON, bind="query-params") or options[0])
    rows, _, _ = study.labelled.rows()
    values = rows[:, chosen]
    title = f"neuron {chosen} of {study.labelled.site}"
    chart = shared.densities(values, study.labelled.positive, study.labelled.names, title, charts.HEIGHT)
    st.altair_chart(chart, alt=f"What {title} holds at the tokens of both classes.")
    weight = study.probes().weights[study.strength, chosen]
    best = study.others().query("neurons == 1 and chosen == 'mean difference'").iloc[0]
    column = probing.column(study.figure)
    st.caption(
        f"Weight {weight:+.2f} a standard deviation (largest weights come first in the list). A single neuron, chosen on other "
        f"folds by its mean difference, reaches {study.figure} {best[column]:.2f} "
        f"[{best[f'{column}_low']:.2f}, {best[f'{column}_high']:.2f}]."
    )
    order = np.argsort(values)
    for place, name, which in zip(st.columns(2), ("most", "least"), (order[::-1][:ENDS], order[:ENDS]), strict=True):
        place.caption(f"Where it holds {name} (the token in brackets)")
        place.dataframe(choice.contexts(study.labelled, values, which, "value"), hide_index=True, row_height=28)
    return chart


VIEWS: dict[str, Callable[[Study], Chart]] = {
    "sparsity": sparsity, "controls": controls, "stability": stability, "layers": layers, "causal": causal, "neuron": neuron,
}  # fmt: skip
