"""The GED page, and the choice of categories that it shares."""

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from interp_core import activations, categories, checkpoints, corpora, ged
from tests.conftest import ROOT
from tests.pages.conftest import LIMIT, said
from tests.pages.test_atlas_page import small_file, upload

VIEWS = ["projections", "spectrum", "the trap", "layers", "meaning"]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A null of few draws: the page is tested here, not the statistics."""
    whole = ged.null
    monkeypatch.setattr(ged, "null", lambda *rows, **options: whole(*rows, **options | {"draws": 5}))


@pytest.fixture
def page(app: AppTest) -> AppTest:
    app = app.switch_page("pages/ged.py").run()
    return app.select_slider(key="read").set_value("2048").run()


def badge(app: AppTest) -> str:
    return next(str(element.value) for element in app.markdown if "badge[" in str(element.value))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens(page: AppTest, view: str) -> None:
    app = page.segmented_control(key="plot").set_value(view).run()
    assert not app.exception
    assert not app.error
    assert [metric.label.split(",")[0] for metric in app.metric[:2]] == ["variance ratio", "separation of means"]
    assert "shifted labels" in app.metric[2].label
    assert "vowel" in said(app)
    assert "tokens all other tokens" not in said(app)


def test_the_page_shows_what_the_library_measures(page: AppTest) -> None:
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    code = next(element.value for element in page.code if "import" in element.value)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    assert page.metric[0].value.startswith(f"{names['scores'].ratio.estimate:.2f} ±")
    assert page.metric[1].value.startswith(f"{names['scores'].separation.estimate:.2f} ±")
    text, windows = names["text"], names["places"].numpy()
    by_hand = np.array(
        [[c in "aeiouAEIOU" for c in checkpoint.tokenizer.decode(row.tolist())] for row in text.validation[windows]]
    )
    assert np.array_equal(names["positive"], by_hand.ravel())
    assert f"{by_hand.sum():,} of {by_hand.size:,} tokens ({by_hand.mean():.1%}) are marked" in said(page)


def test_category_layer_site_and_shrinkage_answer(page: AppTest) -> None:
    app = page.selectbox(key="category").set_value("whitespace").run()
    assert "tokens whitespace" in said(app)
    before = app.metric[0].value
    app = app.radio(key="layer").set_value("3").run()
    assert app.metric[0].value != before
    assert "resid_post.3" in said(app)
    app = app.selectbox(key="site").set_value("mlp_post").run()
    assert not app.exception
    assert "mlp_post." in said(app)
    app = app.selectbox(key="site").set_value("resid_post").run()
    before = app.metric[0].value
    app = app.select_slider(key="shrinkage").set_value(0.3).run()
    assert app.metric[0].value != before
    app = app.selectbox(key="against").set_value("vowel").run()
    assert not app.exception
    assert "vowel, natural shares" in said(app)


def test_patterns_of_ones_own_and_categories_that_do_not_do(page: AppTest) -> None:
    app = page.selectbox(key="category").set_value("your own pattern").run()
    app = app.text_input(key="regex").set_value("(a").run()
    assert "no regular expression: missing )" in said(app)
    app = app.text_input(key="regex").set_value("zzzz9").run()
    assert "No token of these" in said(app)
    app = app.text_input(key="regex").set_value("(?s).").run()
    assert "there is nothing to compare with" in said(app)
    app = app.text_input(key="regex").set_value("th|he").run()
    assert not app.exception
    assert "are marked" in said(app)
    app = app.selectbox(key="category").set_value("vowel").run()
    app = app.selectbox(key="against").set_value("vowel").run()
    assert "are the same tokens here" in said(app)
    app = app.selectbox(key="against").set_value("first letter of a word").run()
    assert "belong to both and are left out" in said(app)
    app = app.selectbox(key="category").set_value("your own pattern").run()
    app = app.selectbox(key="against").set_value("vowel").run()
    app = app.text_input(key="regex").set_value("[ae]").run()
    assert "is vowel, too: nothing is left to compare" in said(app)
    app = app.selectbox(key="category").set_value("digit").run()
    app = app.selectbox(key="against").set_value("all other tokens").run()
    assert not app.exception
    assert "No token of these" in said(app) or "are in the category" in said(app) or "windows only" in said(app)


def test_numbers_have_no_categories(page: AppTest) -> None:
    app = page.selectbox(key="checkpoint").set_value("induction").run()
    assert not app.exception
    assert "categories are of characters" in "".join(str(info.value) for info in app.info)


def test_a_tiny_model_of_ones_own(page: AppTest) -> None:
    app = upload(page, "mine.pt", small_file(), ("mine.txt", ("abcdefghijk" * 400).encode()))
    assert not app.exception
    app = app.selectbox(key="text").set_value("mine.txt").run()
    for view in VIEWS:
        app = app.segmented_control(key="plot").set_value(view).run()
        assert not app.exception, view
    assert {"mine (yours)"} <= set(app.selectbox(key="checkpoint").options)


def test_a_speakers_name_is_known_at_layer_two_of_shakespeare(shakespeare: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run().switch_page("pages/ged.py").run()
    app = app.selectbox(key="category").set_value("inside a speaker's name").run()
    app = app.radio(key="layer").set_value("2").run()
    assert not app.exception
    assert "inside a speaker's name" in badge(app)
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    text = corpora.encode("tiny-shakespeare", shakespeare, checkpoint.tokenizer)
    offsets = corpora.window_offsets(text.validation, 64, 64, 0)
    places = offsets[:, None].numpy() + np.arange(64)
    pieces = [checkpoint.tokenizer.decode([t]) for t in text.validation.tolist()]
    belongs = categories.label(categories.NAMED["inside a speaker's name"].pattern, pieces)[places].ravel()
    found = activations.gather(checkpoint.model, text.validation[places], ["resid_post.2"])["resid_post.2"]
    scores = ged.cross_validate(found.values.numpy().astype(float), belongs, found.windows.numpy())
    assert app.metric[0].value.startswith(f"{scores.ratio.estimate:.2f} ±")
    assert scores.ratio.low > 2
