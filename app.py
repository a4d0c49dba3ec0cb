"""Loupe: `streamlit run app.py`. The frame around every page; the pages say the rest."""

import streamlit as st

from ui import session

st.set_page_config(page_title="Loupe", page_icon=":material/search:", layout="wide", initial_sidebar_state="expanded")

session.frame(
    st.navigation(
        [
            st.Page("pages/start.py", title="Start", icon=":material/home:", default=True),
            st.Page("pages/train.py", title="Train", icon=":material/model_training:"),
            st.Page("pages/atlas.py", title="Atlas", icon=":material/grid_view:"),
            st.Page("pages/ablation.py", title="Ablation", icon=":material/content_cut:"),
            st.Page("pages/induction.py", title="Induction", icon=":material/content_copy:"),
            st.Page("pages/probing.py", title="Probing", icon=":material/biotech:"),
            st.Page("pages/sae.py", title="SAE", icon=":material/hub:"),
            st.Page("pages/ged.py", title="GED", icon=":material/explore:"),
            st.Page("pages/tuning.py", title="Tuning", icon=":material/tune:"),
        ]
    )
)
