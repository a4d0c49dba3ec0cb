"""The Ablation page."""

import pytest
from streamlit.testing.v1 import AppTest

from interp_core import ablation, checkpoints, corpora, samples
from tests.conftest import ROOT
from tests.pages.conftest import said
from tests.pages.test_atlas_page import small_file, upload


@pytest.fixture
def page(app: AppTest) -> AppTest:
    return app.switch_page("pages/ablation.py").run()


@pytest.mark.parametrize("view", ["map", "ranking", "three ways", "pairs", "what breaks"])
def test_every_view_opens(page: AppTest, view: str) -> None:
    app = page.segmented_control(key="show").set_value(view).run()
    assert not app.exception
    assert len(app.metric) == 3
    assert "control: without" in app.metric[1].label
    assert "median head (rank 1 of 16)" in app.metric[2].label
    assert "disjoint windows" in said(app)


def test_the_page_shows_what_the_library_measures(page: AppTest) -> None:
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    context = checkpoint.model.config.context
    text = corpora.from_windows("own-samples", samples.own_windows(checkpoint.model, 8192 // context, 0))
    windows = corpora.windows(text.validation, context, 32, 0)
    found = ablation.sweep(checkpoint.model, windows, ablated=ablation.parts(checkpoint.model.config, ("head",)))
    best = ablation.strongest_head(found, "zero")
    assert page.selectbox(key="part").value == best.head
    assert page.metric[0].value.startswith(f"{best.effect.estimate:.2f} ±")
    assert best.effect.low > 0
    assert f"the model depends on {best.head}" in said(page) or best.head in page.metric[0].label


def test_the_pages_python_gives_the_pages_numbers(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(element.value for element in page.code if "import" in element.value)
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    shown = next(frame.value for frame in page.dataframe if "kl_nats" in frame.value)
    assert names["sweep"].table["effect_nats"].to_numpy() == pytest.approx(shown["effect_nats"].to_numpy(), abs=1e-3)


def test_modes_units_and_parts_answer(page: AppTest) -> None:
    nats = float(page.metric[0].value.split()[0])
    app = page.segmented_control(key="unit").set_value("bits/char").run()
    assert float(app.metric[0].value.split()[0]) == pytest.approx(nats / 0.6931, rel=0.02)
    app = app.segmented_control(key="mode").set_value("resample").run()
    assert not app.exception
    app = app.selectbox(key="part").set_value("L3 MLP").run()
    assert not app.exception
    assert "without L3 MLP" in app.metric[0].label


def test_the_selected_head_goes_to_the_atlas_and_comes_back(page: AppTest) -> None:
    app = page.selectbox(key="part").set_value("L2H1").run()
    app = app.switch_page("pages/atlas.py").run()
    assert app.selectbox(key="head").value == "L2H1"
    app = app.selectbox(key="head").set_value("L1H0").run().switch_page("pages/ablation.py").run()
    assert not app.exception
    assert app.selectbox(key="part").value == "L1H0"


def test_an_uploaded_untrained_model_depends_on_nothing(page: AppTest) -> None:
    app = page.selectbox(key="part").set_value("L3H3").run()  # a part that the smaller model has not got
    app = upload(app, "mine.pt", small_file())
    assert not app.exception
    assert app.selectbox(key="checkpoint").value == "mine (yours)"
    assert "the model depends on" not in said(app)


def test_a_text_of_ones_own_is_broken(page: AppTest) -> None:
    app = page.segmented_control(key="show").set_value("what breaks").run()
    app = app.text_area(key="broken_text").set_value("x").run()
    assert "Type at least two characters" in said(app)
    app = app.text_area(key="broken_text").set_value("ROMEO: but soft, 日本").run()
    assert not app.exception
    assert any("Without" in element.value for element in app.caption)
