"""The frame, the start page and the Atlas."""

import io
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from streamlit.testing.v1 import AppTest

from interp_core import atlas, checkpoints, corpora, layouts, samples
from interp_core.model import GPT
from tests.conftest import ROOT, SMALL
from tests.pages.conftest import LIMIT, said
from tests.test_checkpoints import BAD_FILES


@pytest.fixture
def atlas_page(app: AppTest) -> AppTest:
    return app.switch_page("pages/atlas.py").run()


def heads_table(app: AppTest) -> pd.DataFrame:
    return next(frame.value for frame in app.dataframe if "stability" in frame.value)


def upload(app: AppTest, name: str, data: bytes, papers: tuple[str, bytes] | None = None) -> AppTest:
    if papers:
        app.file_uploader(key="upload_papers").set_value((*papers, "text/plain"))
    app.file_uploader(key="upload_checkpoint").set_value((name, data, "application/octet-stream"))
    return app.run()


def small_file(seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    torch.save(layouts.write(GPT(SMALL, seed)), buffer)
    return buffer.getvalue()


def test_the_start_page_opens_offline_and_says_so(app: AppTest) -> None:
    assert not app.exception
    assert app.selectbox(key="checkpoint").value == "shakespeare"
    assert app.selectbox(key="text").value == "own-samples"
    words = said(app)
    assert "tiny Shakespeare is not on this machine" in words
    assert re.search(r"L\dH\d puts 9\d% of its attention", words)
    assert "95% interval" in words
    assert "checkpoint shakespeare (" in words


def test_the_start_page_opens_on_shakespeare_where_it_is(shakespeare: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run()
    assert app.selectbox(key="text").value == "tiny-shakespeare"
    assert "is not on this machine" not in said(app)
    assert "reads this text" in said(app)


def test_fetching_without_a_network_says_what_to_do(app: AppTest) -> None:
    next(button for button in app.button if button.label == "Fetch tiny Shakespeare").click()
    app.run()
    assert not app.exception
    assert "set LOUPE_DATA" in app.toast[0].value
    assert app.selectbox(key="text").value == "own-samples"


@pytest.mark.parametrize("view", ["all heads", "one head", "sharp or loud", "your sentence"])
def test_every_view_of_the_atlas_opens(atlas_page: AppTest, view: str) -> None:
    app = atlas_page.segmented_control(key="view").set_value(view).run()
    assert not app.exception
    assert len(app.metric) == 3
    assert app.metric[0].value.endswith("of 16")
    assert "untrained" in app.metric[2].label


def test_the_atlas_shows_what_the_library_measures(atlas_page: AppTest) -> None:
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    text = corpora.from_windows("own-samples", samples.own_windows(checkpoint.model, 8192 // 64, 0))
    windows = corpora.windows(text.validation, checkpoint.model.config.context, 32, 0)
    measured = atlas.head_atlas(checkpoint.model, windows)
    best = atlas.standout(measured)
    assert atlas_page.selectbox(key="head").value == best.head
    assert f"{best.score.estimate:.2f}" in atlas_page.metric[1].value
    table = heads_table(atlas_page)
    assert list(table["head"]) == list(measured.table["head"])
    assert table["previous_token_score"].to_numpy() == pytest.approx(measured.table["previous_token_score"].to_numpy())
    assert list(table["label"]) == list(atlas.label_heads(measured).table["label"])


def test_the_pages_python_gives_the_pages_numbers(atlas_page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(element.value for element in atlas_page.code if "import" in element.value)
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    shown = heads_table(atlas_page)
    assert names["heads"].table["entropy"].to_numpy() == pytest.approx(shown["entropy"].to_numpy())
    assert f"{names['labels'].named.estimate:.0f} of 16" == atlas_page.metric[0].value


def test_threshold_windows_and_head_answer(atlas_page: AppTest) -> None:
    app = atlas_page.slider(key="threshold").set_value(0.9).run()
    few = int(app.metric[0].value.split()[0])
    app = app.slider(key="threshold").set_value(0.1).run()
    assert int(app.metric[0].value.split()[0]) > few
    app = app.slider(key="windows").set_value(8).run()
    assert "8 disjoint windows" in said(app)
    app = app.selectbox(key="head").set_value("L2H1").run()
    assert not app.exception
    assert app.selectbox(key="head").value == "L2H1"


def test_the_selected_head_goes_along_and_back(atlas_page: AppTest) -> None:
    app = atlas_page.selectbox(key="head").set_value("L1H3").run()
    app = app.switch_page("pages/start.py").run().switch_page("pages/atlas.py").run()
    assert app.selectbox(key="head").value == "L1H3"


def test_one_window_and_an_untrained_model_can_be_looked_at(atlas_page: AppTest) -> None:
    app = atlas_page.segmented_control(key="view").set_value("one head").run()
    app = app.selectbox(key="pattern").set_value("window 3").run()
    assert not app.exception
    app = app.segmented_control(key="view").set_value("all heads").run()
    app = app.toggle(key="untrained").set_value(True).run()
    assert not app.exception


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("", "Type at least two"),
        ("日本 to be", "Left out: 日 本"),
        ("to be " * 30, "The first 64 of 180"),
        ("日本", "at least two"),
    ],
)
def test_any_sentence_is_taken(atlas_page: AppTest, sentence: str, message: str) -> None:
    app = atlas_page.segmented_control(key="view").set_value("your sentence").run()
    app = app.text_input(key="sentence").set_value(sentence).run()
    assert not app.exception
    assert message in said(app)


def test_the_course_checkpoint_is_taken(reference: Path) -> None:
    """Without text or vocabulary: tiny Shakespeare is on this machine and has as many characters."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run().switch_page("pages/atlas.py").run()
    app = upload(app, "step6_model.pt", (reference / "step6_model.pt").read_bytes())
    assert not app.exception
    assert app.selectbox(key="checkpoint").value == "step6_model (yours)"
    assert app.selectbox(key="text").value == "tiny-shakespeare"
    assert app.selectbox(key="head").value == "L0H3"
    assert "0.97" in app.metric[1].value


def test_the_course_checkpoint_is_taken_offline(offline: None, reference: Path) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run()
    app = upload(app, "step6_model.pt", (reference / "step6_model.pt").read_bytes())
    assert not app.exception
    assert app.selectbox(key="checkpoint").value == "step6_model (yours)"
    assert app.selectbox(key="text").value == "own-samples"
    sources = next(frame.value for frame in app.dataframe if "source" in frame.value).set_index("what")["source"]
    assert "assumed: the same 65 characters as shakespeare" in sources["vocabulary"]


def test_a_checkpoint_comes_with_its_text(atlas_page: AppTest) -> None:
    app = atlas_page.selectbox(key="head").set_value("L3H3").run()  # a head that the smaller model has not got
    app = upload(app, "mine.pt", small_file(), ("abc.txt", b"abcdefghijk " * 400 + b"kjihgfedcba"))
    assert "11 tokens but abc.txt has 12 distinct characters" in said(app)
    assert app.selectbox(key="checkpoint").value == "shakespeare"
    assert app.selectbox(key="text").value == "own-samples"
    app = upload(app, "mine.pt", small_file(), ("abc.txt", b"abcdefghijk" * 400))
    assert not app.exception
    assert app.selectbox(key="checkpoint").value == "mine (yours)"
    assert app.selectbox(key="text").value == "abc.txt"
    assert app.metric[0].value.endswith("of 6")


# One of each place where a file can be refused; what each of all others is told, `test_checkpoints` says.
REFUSED_IN = ("empty", "web page", "lfs", "zip", "cut off", "damaged name", "pickle", "code", "memory", "whole model",
              "a view that pretends", "another layout", "lost key", "wrong shape", "diverged")  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_IN)
def test_a_bad_file_gets_a_message_and_the_app_goes_on(atlas_page: AppTest, name: str) -> None:
    app = upload(atlas_page, "model.pt", BAD_FILES[name][0])
    assert not app.exception
    assert len(app.error) == 1
    assert app.selectbox(key="checkpoint").value == "shakespeare"
    assert app.metric[0].value.endswith("of 16")
    app = upload(app, "mine.pt", small_file())
    assert not app.error
    assert app.selectbox(key="checkpoint").value == "mine (yours)"


def test_a_text_with_other_characters_is_explained_and_can_be_cut(atlas_page: AppTest) -> None:
    app = atlas_page.selectbox(key="text").set_value("python-docs").run()
    assert not app.exception
    assert "are not among the 65 that the checkpoint knows" in app.error[0].value
    assert "samples of the checkpoint itself" in said(app)
    app = app.checkbox(key="drop_unknown").check().run()
    assert not app.error
    assert "characters left out" in said(app)
    assert "text python-docs" in said(app)


@pytest.mark.parametrize("kind", ["repeats", "periodic", "alphabet", "successors"])
def test_synthetic_texts_can_be_read(atlas_page: AppTest, kind: str) -> None:
    app = atlas_page.selectbox(key="text").set_value(kind).run()
    assert not app.exception
    assert f"text {kind}" in said(app)


def test_a_pasted_text_is_read_when_it_is_long_enough(atlas_page: AppTest) -> None:
    app = atlas_page.selectbox(key="text").set_value("paste your own").run()
    assert "Paste a text above" in app.error[0].value
    app = app.text_area(key="pasted").set_value("To be. ").run()
    assert "holds 0 windows of 65 tokens" in app.error[0].value
    app = app.text_area(key="pasted").set_value("To be, or not to be. " * 400).run()
    assert not app.exception
    assert not app.error
    assert "text paste your own" in said(app)


def test_another_checkpoint_selects_its_own_head(reference: Path) -> None:
    """A head that was selected by default, or by hand, is not carried over to a model that has others."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run().switch_page("pages/atlas.py").run()
    shipped = app.selectbox(key="head").value
    app = upload(app, "step6_model.pt", (reference / "step6_model.pt").read_bytes())
    assert app.selectbox(key="head").value == "L0H3" != shipped
    app = app.selectbox(key="checkpoint").set_value("shakespeare").run()
    assert app.selectbox(key="head").value == shipped
    assert shipped in app.metric[1].label


def test_a_part_of_the_text_is_kept_as_a_text_only(reference: Path, shakespeare: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run()
    part = shakespeare[:60_000].encode()
    app = upload(app, "step6_model.pt", (reference / "step6_model.pt").read_bytes(), ("part.txt", part))
    assert not app.exception
    assert not app.error
    assert "kept as a text only. The vocabulary is tiny-shakespeare" in app.warning[-1].value
    assert app.selectbox(key="text").value == "part.txt"
    assert "reads this text" in said(app)


def test_a_vocabulary_in_another_order_is_said_before_anything_else(reference: Path) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run()
    letters = "".join(sorted(chr(0x4E00 + i) for i in range(65)))
    text = "".join(letters[(7 * i * i + i) % 65] for i in range(20_000)) + letters
    app = upload(app, "step6_model.pt", (reference / "step6_model.pt").read_bytes(), ("other.txt", text.encode()))
    assert not app.exception
    assert "Before you believe anything below" in app.warning[0].value


def test_a_link_to_a_checkpoint_that_is_not_here_says_so(offline: None) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT)
    app.query_params["checkpoint"] = "mine (yours)"
    app.run()
    assert not app.exception
    assert "asks for the checkpoint mine (yours), which is not here" in app.warning[0].value


def test_the_untrained_grid_says_what_it_is(atlas_page: AppTest) -> None:
    app = atlas_page.toggle(key="untrained").set_value(True).run()
    assert "untrained model of the same shape" in str(app.get("vega_lite_chart")[0].proto) or "untrained" in str(
        app.main
    )
