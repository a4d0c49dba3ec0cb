"""The Probing page."""

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from interp_core import probing
from tests.conftest import ROOT
from tests.pages.conftest import LIMIT, said
from tests.pages.test_atlas_page import small_file, upload
from ui import wording
from ui.sections import probing_views

VIEWS = ["sparsity", "controls", "stability", "layers", "causal", "neuron"]
READ = ["AUC", "above nearby tokens", "selectivity", "control: shifted labels"]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few subsamples and random sets: the page is tested here, not the statistics."""
    sets = probing.ablate
    monkeypatch.setattr(probing, "ablate", lambda *given, **options: sets(*given, **options | {"sets": 3}))
    monkeypatch.setattr(probing_views, "SUBSAMPLES", 10)


@pytest.fixture
def page(app: AppTest) -> AppTest:
    app = app.switch_page("pages/probing.py").run()
    return app.select_slider(key="read").set_value("2048").run()


def badges(app: AppTest) -> str:
    return "\n".join(str(element.value) for element in app.markdown if "badge[" in str(element.value))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens(page: AppTest, view: str) -> None:
    app = page.segmented_control(key="probe").set_value(view).run()
    assert not app.exception
    assert not app.error
    assert [metric.label.split(", ")[0].split(" (")[0] for metric in app.metric] == READ
    assert "vowel" in badges(app)
    assert "tokens all other tokens" not in said(app)
    assert "64 tokens · " in said(app)


def test_the_page_shows_what_the_library_measures(page: AppTest) -> None:
    for sampling, figure in (("natural shares", "AUC"), ("balanced", "accuracy")):
        app = page.radio(key="sampling").set_value(sampling).run()
        app = app.radio(key="judged").set_value(figure).run()
        code = next(element.value for element in app.code if "import" in element.value)
        names: dict = {}
        exec(compile(code, "snippet", "exec"), names)
        assert app.metric[0].value == wording.plus_minus(names["found"])
        assert app.metric[0].label == f"{figure}, {names['probes'].neurons[7]} of 128 neurons"
        positive = names["positive"]
        assert f"{positive.sum():,} tokens vowel, {(~positive).sum():,} all other tokens, {sampling}" in said(app)
    assert positive.mean() == 0.5


def test_the_slider_changes_the_probe_and_says_where_it_keeps_nothing(page: AppTest) -> None:
    dense = page.select_slider(key="sparsity").set_value("1").run()
    many = int(dense.metric[0].label.split()[1])
    empty = dense.select_slider(key="sparsity").set_value("0.00032").run()
    assert empty.metric[0].label == "AUC, 0 of 128 neurons"
    assert many > 10
    assert empty.metric[0].value.startswith("0.500")
    assert "vowel cannot be read here with this probe" in badges(empty)
    nothing = empty.segmented_control(key="probe").set_value("stability").run()
    assert not nothing.exception
    assert "No neuron is kept by 80% of the subsamples" in said(nothing)
    nothing = nothing.segmented_control(key="probe").set_value("causal").run()
    assert "see *stability*" in said(nothing)


def test_the_bound_is_given_where_it_holds_and_only_there(page: AppTest) -> None:
    app = page.segmented_control(key="probe").set_value("stability").run()
    assert "(Meinshausen-Bühlmann)" in said(app)
    app = app.toggle(key="pairs").set_value(True).run()
    assert "(Meinshausen-Bühlmann)" in said(app)
    app = app.radio(key="share").set_value("0.7 of it").run()
    assert not app.exception
    assert "No bound on false ones" in said(app)
    assert app.toggle(key="pairs").disabled
    app = app.radio(key="share").set_value("half of the text").run()
    app = app.slider(key="stable").set_value(0.5).run()
    assert "No bound on false ones" in said(app)


def test_position_is_a_category_too_and_a_rare_one_is_refused(page: AppTest) -> None:
    app = page.selectbox(key="category").set_value("second half of the window").run()
    assert not app.exception
    assert "1,024 of 2,048 tokens (50.0%) are marked" in said(app)
    app = app.selectbox(key="category").set_value("your own pattern").run()
    app = app.text_input(key="regex").set_value("(a").run()
    assert "no regular expression: missing )" in said(app)
    app = app.text_input(key="regex").set_value(r"\A..").run()
    assert not app.exception
    assert "No token of these" in said(app) or "windows only" in said(app)


def test_numbers_have_no_categories(page: AppTest) -> None:
    app = page.selectbox(key="checkpoint").set_value("induction").run()
    assert not app.exception
    assert "categories are of characters" in "".join(str(info.value) for info in app.info)


def test_a_tiny_model_of_ones_own(page: AppTest) -> None:
    app = upload(page, "mine.pt", small_file(), ("mine.txt", ("abcdefghijk" * 400).encode()))
    assert not app.exception
    app = app.selectbox(key="text").set_value("mine.txt").run()
    for view in VIEWS:
        app = app.segmented_control(key="probe").set_value(view).run()
        assert not app.exception, view


def test_the_table_for_files_is_the_path(page: AppTest) -> None:
    """What the CSV holds: a row a strength, intervals around every figure."""
    code = next(element.value for element in page.code if "import" in element.value)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    table: pd.DataFrame = names["probes"].table
    assert list(table.columns[:5]) == ["strength", "neurons", "auc", "auc_low", "auc_high"]
    assert len(table) == len(probing.STRENGTHS)


def test_a_speakers_name_is_known_at_layer_two_of_shakespeare(shakespeare: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run().switch_page("pages/probing.py")
    app.query_params["category"] = "inside a speaker's name"
    app.query_params["layer"] = "2"
    app = app.run()
    assert not app.exception
    assert "inside a speaker's name can be read" in badges(app)
    assert float(app.metric[0].value.split()[0]) > 0.97
    assert float(app.metric[2].value.split()[0]) > 0, "selectivity"
