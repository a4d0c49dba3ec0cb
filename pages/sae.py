"""SAE: which features does a layer write, and are they real?"""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 5], vertical_alignment="bottom")
top.title("SAE")
session.warm_up()

from interp_core.sae_files import SaeError
from ui import cache, saes
from ui.bench import MOST_TOKENS, open_bench
from ui.sections import new_sae as training
from ui.sections import sae_views
from ui.sections.sae import Lens, claim
from ui.takeaway import load_lines, shown_path, takeaway

KEYS = (
    session.SAE, session.FEATURE, session.SAE_VIEW, session.SEARCH, session.REPLICATED, session.STRENGTH_OF, session.TOKENS,
    session.SAE_FIGURE,
)  # fmt: skip
TRAINING = "training"

bench = open_bench(MOST_TOKENS)
found = {entry.name: entry for entry in saes.find(bench)}
with st.sidebar:
    options = [*found, training.NEW]
    session.default_to(session.SAE, options, options[0])
    st.caption("Autoencoder")
    name = st.selectbox(
        "Autoencoder", options, index=None, key=session.SAE, bind="query-params", required=True, label_visibility="collapsed"
    ) or options[0]  # fmt: skip
    chosen = found.get(name)
    if chosen is not None:
        training.draw_controls(chosen)
if session.SAE_ERROR in st.session_state:
    st.error(st.session_state.pop(session.SAE_ERROR))
active = chosen is not None and chosen.job is not None and chosen.job.active
views = [*sae_views.VIEWS, TRAINING] if chosen is not None and chosen.ready else [TRAINING]
session.default_to(session.SAE_VIEW, views, views[0])
view = side.segmented_control(
    "View", views, key=session.SAE_VIEW, bind="query-params", required=True, label_visibility="collapsed"
)
st.markdown("**Which features does a layer write, and are they real?**")
if chosen is None:
    training.draw_form(bench)
elif not chosen.ready:
    training.draw(chosen)
else:
    try:
        lens = Lens(bench, cache.autoencoder_of(chosen.out))
    except SaeError as error:
        st.error(f"{error}")
        st.stop()
    if active and view != TRAINING:
        training.notice_the_end(chosen, chosen.stamp)
    claim(lens)
    if view == TRAINING:
        chart = None
        training.draw(chosen)
        feature = 0
    else:
        picture, about = st.columns([5, 3], gap="medium")
        with about:
            feature = sae_views.chosen_feature(lens)
            sae_views.beside(lens, feature)
        with picture:
            chart = sae_views.VIEWS[view](lens, feature)
    code = load_lines(bench) + "\n" + sae_views.code(lens, feature, shown_path(chosen.out))
    takeaway(bench, "features", lens.table(), chart, code, KEYS, lens.provenance)
with st.expander("How this is measured"):
    st.markdown(session.method("sae"))
