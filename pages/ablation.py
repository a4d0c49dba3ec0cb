"""Ablation: which parts does this model depend on, and by how much?"""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 3], vertical_alignment="bottom")
top.title("Ablation")
session.warm_up()

from interp_core import ablation
from interp_core.statistics import Interval
from ui import wording
from ui.bench import open_bench
from ui.sections.ablation import VIEWS, View, choose_part
from ui.takeaway import load_lines, takeaway

bench = open_bench()
with st.sidebar:
    mode = st.segmented_control(
        "Taken away by", ablation.MODES, default="zero", key=session.MODE, bind="query-params", required=True,
        help="zero: its output is 0. mean: its mean at each position over training windows. resample: what it wrote in "
        "another training window.",
    )  # fmt: skip
    units = [wording.NATS, wording.BITS if bench.token_word == "character" else wording.BITS_OF_TOKENS]
    session.keep_choice(session.UNIT, units)
    unit = st.segmented_control(
        "Unit", units, default=wording.NATS, key=session.UNIT, bind="query-params", required=True
    )
name = side.segmented_control(
    "View",
    list(VIEWS),
    default="map",
    key=session.ABLATION_VIEW,
    bind="query-params",
    required=True,
    label_visibility="collapsed",
)

found = bench.sweep()
strongest = ablation.strongest_head(found, mode)
st.markdown("**Which parts does this model depend on, and by how much?**")
claim, beside, median = st.columns(3)
badge = st.container()
figure, about = st.columns([5, 3], gap="medium")
with about:
    part = choose_part(bench, strongest.head)
    heads = bench.heads().table
    others = [head for head in heads["head"] if head != part.name]
    norms = heads.set_index("head")["output_norm"]
    control = None
    if others:
        nearest = min(others, key=lambda head: abs(norms[head] - norms.get(part.name, norms.median())))
        session.default_to(session.CONTROL, others, nearest)
        control = st.selectbox(
            "Control head", others, key=session.CONTROL,
            help="By default the head whose output has the closest norm: as loud, but perhaps not as needed.",
        )  # fmt: skip

view = View(bench, found, bench.donors(), part, mode, unit)
chosen = part.name == strongest.head
effect = strongest.effect if chosen else ablation.effect_of(found, part.name, mode)
rank, total, difference = ablation.against_other_heads(found, part.name, mode)
good, verdict = wording.ablation_verdict(part.name, effect, rank, total, difference)


def shown(value: Interval) -> str:
    """An effect in the chosen unit."""
    return f"{wording.plus_minus(Interval(*(view.scale * v for v in (value.estimate, value.low, value.high))))} {unit}"


where = f"the {strongest.windows} windows that did not choose it" if chosen else f"all {len(bench.windows)} windows"
claim.metric(f"loss added without {part.name}", shown(effect), help=f"Measured on {where}.")
if control is None:
    beside.metric("control", "none: it is the only head")
else:
    beside.metric(f"control: without {control}, as loud", shown(ablation.effect_of(found, control, mode)))
median.metric(f"more than the median head (rank {rank} of {total})", shown(difference))
badge.badge(
    verdict, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
)
with figure:
    chart = VIEWS[name](view)
with about:
    mine = found.table[found.table["part"] == part.name]
    st.dataframe(
        view.shown(mine, "effect_nats")
        .assign(kl=(view.scale * mine["kl_nats"]))[["mode", "effect", "low", "high", "kl"]]
        .round(3),
        hide_index=True,
    )
    st.caption(f"{part.name} taken away in each way, {unit}, with 95% intervals; kl: divergence from the intact model.")
    if part.kind == "head":
        left, right = st.columns(2)
        left.page_link("pages/atlas.py", label=f"{part.name} in the Atlas", icon=":material/arrow_forward:")
        right.page_link("pages/induction.py", label=f"{part.name} in Induction", icon=":material/arrow_forward:")

context, count = bench.windows.shape[1] - 1, len(view.donors.samples["z.0"])
code = f"""{load_lines(bench, "ablation")}
training = corpora.windows(text.train, {context}, count={count}, seed={bench.seed})
donors = ablation.gather_donors(checkpoint.model, training)
sweep = ablation.sweep(checkpoint.model, windows, donors, ablation.MODES, seed={bench.seed})
print(ablation.strongest_head(sweep, "{mode}"))
print(sweep.table)"""
takeaway(bench, "ablation", found.table, chart, code, (session.MODE, session.UNIT, session.ABLATION_VIEW, session.PART))
with st.expander("The table behind it"):
    st.dataframe(found.table.round(4), hide_index=True)
with st.expander("How this is measured"):
    st.markdown(session.method("ablation"))
