"""The Induction page."""

import io

import pytest
import torch
from streamlit.testing.v1 import AppTest

from interp_core import checkpoints, copying, layouts
from interp_core.model import GPT, ModelConfig
from tests.conftest import ROOT
from tests.pages.conftest import said
from tests.pages.test_atlas_page import small_file, upload

VIEWS = ["loss by position", "heads", "around the match", "without a head", "in the text", "emergence"]


@pytest.fixture
def page(app: AppTest) -> AppTest:
    return app.switch_page("pages/induction.py").run()


def badge(app: AppTest) -> str:
    return next(str(element.value) for element in app.markdown if "badge[" in str(element.value))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens(page: AppTest, view: str) -> None:
    app = page.segmented_control(key="look").set_value(view).run()
    assert not app.exception
    assert len(app.metric) == 3
    assert "positive control" in app.metric[1].label
    assert "untrained" in app.metric[2].label
    assert "300 sequences of 2 copies of 32 random tokens, drawn uniformly" in said(app)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shakespeare", "no copying, shown"),
        ("induction", "induction circuit present"),
        ("periodic", "copying, but not by the textbook circuit"),
        ("alphabet", "no copying, shown"),
    ],
)
def test_the_verdict_on_every_shipped_checkpoint(page: AppTest, name: str, words: str) -> None:
    app = page.selectbox(key="checkpoint").set_value(name).run()
    assert not app.exception
    assert not app.error
    assert words in badge(app)


def test_the_page_shows_what_the_library_measures(page: AppTest) -> None:
    model = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt").model
    found = copying.measure(model, copying.Protocol())
    assert page.metric[0].value.startswith(f"{found.copying_gain.estimate:.2f} ±")
    assert f"at most {found.copying_at_most:.3f}" in page.metric[0].label
    known = checkpoints.load(ROOT / "checkpoints" / "induction.pt").model
    assert page.metric[1].value.startswith(f"{copying.measure(known, copying.Protocol()).copying_gain.estimate:.2f} ±")


def test_the_pages_python_gives_the_pages_numbers(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    app = page.selectbox(key="checkpoint").set_value("induction").run()
    code = next(element.value for element in app.code if "import" in element.value)
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    assert app.metric[0].value.startswith(f"{names['behaviour'].copying_gain.estimate:.2f} ±")
    shown = next(frame.value for frame in app.dataframe if "matched_score" in frame.value)
    expected = names["circuit"].table["matched_score"].to_numpy()
    assert shown["matched_score"].to_numpy() == pytest.approx(expected, abs=1e-4)


def test_length_copies_tokens_and_margin_answer(page: AppTest) -> None:
    app = page.slider(key="copies").set_value(3).run()
    assert app.slider(key="repeat").max == 21
    app = app.slider(key="repeat").set_value(10).run()
    assert "3 copies of 10 random tokens" in said(app)
    app = app.segmented_control(key="tokens").set_value("as in the text").run()
    assert not app.exception
    assert "drawn as in own-samples" in said(app)
    app = app.slider(key="margin").set_value(1.0).run()
    assert not app.exception
    assert "nats, below 1." in said(app)


def test_the_selected_head_goes_along_and_comes_back(page: AppTest) -> None:
    app = page.selectbox(key="head").set_value("L1H2").run()
    assert app.switch_page("pages/atlas.py").run().selectbox(key="head").value == "L1H2"
    app = app.switch_page("pages/ablation.py").run()
    assert app.selectbox(key="part").value == "L1H2"
    app = app.selectbox(key="part").set_value("L2H3").run()
    app.query_params.clear()  # as a browser's address is, on the way to another page
    app = app.switch_page("pages/induction.py").run()
    assert app.selectbox(key="head").value == "L2H3"


def test_an_uploaded_untrained_model_does_not_copy(page: AppTest) -> None:
    app = page.slider(key="repeat").set_value(30).run()  # more than the smaller model has room for
    app = upload(app, "mine.pt", small_file())
    assert not app.exception
    assert app.slider(key="repeat").max == 6
    assert "circuit present" not in badge(app)
    assert "No snapshots of mine" in said(app.segmented_control(key="look").set_value("emergence").run())


@pytest.mark.parametrize(("d_vocab", "context", "layers"), [(2, 4, 2), (3, 5, 1), (2, 9, 1)])
def test_tiny_models_are_measured(page: AppTest, d_vocab: int, context: int, layers: int) -> None:
    config = ModelConfig(d_vocab=d_vocab, context=context, d_model=8, heads=2, layers=layers, d_head=4, d_mlp=0)
    buffer = io.BytesIO()
    torch.save(layouts.write(GPT(config)), buffer)
    app = upload(page, "tiny.pt", buffer.getvalue())
    for view in VIEWS:
        app = app.segmented_control(key="look").set_value(view).run()
        assert not app.exception, view
    assert len(app.metric) == 3
