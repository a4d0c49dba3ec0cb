"""Result records to altair charts, one module a page. One theme, two backgrounds, no streamlit."""
