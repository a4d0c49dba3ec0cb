"""What the pages share. Knows streamlit and `interp_core`; nothing here computes."""
