"""Induction: does this model copy from its own context, and is it an induction circuit that does it?"""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 5], vertical_alignment="bottom")
top.title("Induction")
session.warm_up()

from ui import wording
from ui.bench import open_bench
from ui.sections import induction as section
from ui.takeaway import load_lines, takeaway

KEYS = (
    session.HALF, session.COPIES, session.SEQUENCES, session.MARGIN, session.SOURCE, session.INDUCTION_VIEW, session.HEAD,
)  # fmt: skip

bench = open_bench()
with st.sidebar:
    study = section.choose_protocol(bench)
if study is None:
    st.stop()
view = side.segmented_control(
    "View",
    list(section.VIEWS),
    default="loss by position",
    key=session.INDUCTION_VIEW,
    bind="query-params",
    required=True,
    label_visibility="collapsed",
)

st.markdown("**Does this model copy from its own context, and is it an induction circuit that does it?**")
behaviour, control, verdict = study.behaviour(), study.positive_control(), study.verdict()
claim, beside, null = st.columns(3)
claim.metric(
    f"copying gain, nats (95%: at most {behaviour.copying_at_most:.3f})",
    wording.plus_minus(behaviour.copying_gain),
    help="What the right order of the earlier tokens is worth against a wrong one: loss after them shuffled, minus in order.",
)
if control is not None:
    gain, protocol, _ = control
    beside.metric(
        f"positive control: {section.CONTROL}, repeat of {protocol.half}", wording.plus_minus(gain),
        help="The same protocol on a model that is known to copy: could it have shown anything?",
    )  # fmt: skip
null.metric("untrained model of the same shape", wording.plus_minus(study.untrained()))
settled = verdict.kind != "undecided"
with st.container(horizontal=True, gap="small", vertical_alignment="center"):
    st.badge(
        verdict.headline,
        icon=":material/check:" if settled else ":material/question_mark:",
        color="green" if settled else "orange",
    )
    st.caption(" · ".join(verdict.components), width="stretch")
figure, about = st.columns([5, 3], gap="medium")
with about:
    st.markdown("\n".join(f"- {reason}" for reason in verdict.reasons))
    st.caption(f"Next: {verdict.next_step}")
    head = section.choose_head(study.circuit())
    st.dataframe(section.gains(behaviour), hide_index=True, row_height=28)
with figure:
    chart = section.VIEWS[view](study, head)

known_half = control[1].half if control is not None else study.protocol.half
p, uniform = study.protocol, study.source == section.UNIFORM
drawn = "None" if uniform else "torch.bincount(text.train, minlength=checkpoint.model.config.d_vocab).float()"
known_drawn = ", frequencies" if control is not None and control[2] else ""
code = f"""import torch

{load_lines(bench, "copying", "copying_verdict", "induction")}
protocol = copying.Protocol(half={p.half}, copies={p.copies}, sequences={p.sequences}, seed={p.seed})
frequencies = {drawn}
behaviour = copying.measure(checkpoint.model, protocol, frequencies)
circuit = induction.measure_heads(checkpoint.model, protocol.half, {study.head_sequences}, seed={p.seed})
interventions = induction.intervene(checkpoint.model, circuit, behaviour, protocol, frequencies)
known = checkpoints.load("checkpoints/{section.CONTROL}.pt").model
control = copying.measure(known, copying.Protocol({known_half}, {p.copies}, {p.sequences}, {p.seed}){known_drawn})
print(copying_verdict.judge(behaviour, circuit, interventions, control.copying_gain, margin={study.margin}))
print(behaviour.copying_gain, circuit.table)"""
takeaway(bench, "induction", behaviour.table(), chart, code, KEYS, study.provenance)
with st.expander("All heads"):
    st.dataframe(study.circuit().table.round(4), hide_index=True)
with st.expander("How this is measured"):
    st.markdown(session.method("induction"))
