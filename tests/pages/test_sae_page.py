"""The SAE page: a shipped autoencoder, the form, and files that do not do."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from interp_core import jobs, sae_files, sae_job
from tests.conftest import ROOT
from tests.pages.conftest import said
from tests.pages.test_atlas_page import small_file, upload
from ui import saes, session
from ui.sections import new_sae, sae_views

VIEWS = ["features", "one feature", "your text", "cause", "frontier"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sae_views, "DRAWN", 20)


@pytest.fixture
def page(app: AppTest) -> AppTest:
    app = app.switch_page("pages/sae.py").run()
    return app.select_slider(key="read").set_value("2048").run()


@pytest.mark.parametrize("view", [*VIEWS, "training"])
def test_every_view_opens_on_the_shipped_autoencoder(page: AppTest, view: str) -> None:
    app = page.segmented_control(key="see").set_value(view).run()
    assert not app.exception
    assert not app.error
    assert app.metric[0].label.startswith("variance explained, L0 = ")
    assert "principal components" in app.metric[2].label
    assert "% of 2,048" in app.metric[3].value
    assert "TopK, 2,048 features, trained on" in said(app)
    assert "None" not in [str(element.value) for element in app.markdown]


def test_the_page_shows_what_the_library_measures(page: AppTest) -> None:
    code = next(element.value for element in page.code if "import" in element.value)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    feature = page.number_input(key="feature").value
    assert f"fires at {names['fired'].density[feature]:.2%} of the tokens" in said(page)
    assert np.isclose(names["fired"].largest[feature], names["fired"].of(int(feature)).max())


def test_search_filter_and_a_feature_that_never_fires(page: AppTest) -> None:
    table = page.dataframe[-1].value
    app = page.text_input(key="search").set_value("vowel").run()
    assert not app.exception
    found = next(frame.value for frame in app.dataframe if "density" in frame.value)
    assert found["explanation"].str.contains("vowel").all()
    app = app.text_input(key="search").set_value("").run()
    app = app.toggle(key="replicated").set_value(True).run()
    found = next(frame.value for frame in app.dataframe if "density" in frame.value)
    assert (found["replication"] > 0.89).all()
    app = app.text_input(key="search").set_value("no such thing").run()
    assert not app.exception
    assert table is not None
    app = app.text_input(key="search").set_value("").run()
    app = app.segmented_control(key="see").set_value("one feature").run()
    trained = sae_files.load(next(path for path in sae_files.find(session.FOLDER)))
    for feature in range(0, trained.sae.shape.features, 97):
        app = app.number_input(key="feature").set_value(feature).run()
        assert not app.exception
        if "does not fire on these windows" in said(app):
            break
    app = app.segmented_control(key="see").set_value("cause").run()
    assert not app.exception


def test_a_visitors_text(page: AppTest) -> None:
    app = page.segmented_control(key="see").set_value("your text").run()
    app = app.text_area(key="read_text").set_value("thou art").run()
    assert not app.exception
    app = app.text_area(key="read_text").set_value("ж").run()
    assert "Type at least two characters" in "".join(str(info.value) for info in app.info)


def test_a_training_is_put_into_the_line_with_what_it_needs(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "advance", lambda *_: None)  # nothing is started
    app = page.selectbox(key="sae").set_value("train a new one").run()
    assert not app.exception
    assert "It runs beside the app" in said(app)
    app = next(button for button in app.button if button.label == "Train").click().run()
    assert "20,000 are the least to learn features from" in "".join(str(error.value) for error in app.error)
    app = app.selectbox(key="text").set_value("python-docs").run()
    app = app.checkbox[0].set_value(True).run() if app.checkbox else app
    app = app.radio(key="sae_kind").set_value("L1").run()
    app = next(button for button in app.button if button.label == "Train").click().run()
    assert not app.exception
    (job,) = jobs.find(session.RUNS)
    plan = saes.plan_of(job)
    assert plan is not None
    assert plan.kind == "L1"
    assert plan.checkpoint == (ROOT / "checkpoints" / "shakespeare.pt").resolve()
    assert "None" not in [str(element.value) for element in app.markdown], (
        "Streamlit writes what a bare expression gives"
    )
    assert "Waiting, place 1 in the line" in "".join(str(p.proto.text) for p in app.get("progress"))


def test_a_model_of_ones_own_has_no_autoencoder_yet(page: AppTest) -> None:
    app = upload(page, "mine.pt", small_file(), ("mine.txt", ("abcdefghijk" * 400).encode()))
    assert not app.exception
    assert "train a new one" in app.selectbox(key="sae").options
    assert "Learns from" in said(app)


def test_a_spoiled_file_is_not_listed(page: AppTest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "shakespeare.pt").symlink_to(ROOT / "checkpoints" / "shakespeare.pt")
    (tmp_path / "shakespeare.json").symlink_to(ROOT / "checkpoints" / "shakespeare.json")
    (tmp_path / f"bad{sae_files.ENDING}").write_bytes(b"nothing of the kind")
    monkeypatch.setattr(session, "FOLDER", tmp_path)
    app = page.run()
    assert not app.exception
    assert app.selectbox(key="sae").options == ["train a new one"]


def test_the_page_is_drawn_anew_when_there_is_a_newer_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(new_sae.st, "rerun", lambda: drawn.append(1))
    monkeypatch.setattr(jobs, "look", lambda _: SimpleNamespace(active=True))
    chosen = saes.Dictionary("mine", tmp_path / "mine.sae.safetensors", SimpleNamespace(folder=tmp_path))  # type: ignore[arg-type]
    before = chosen.stamp
    new_sae._notice(chosen, before)
    assert not chosen.ready
    assert not drawn
    chosen.out.write_bytes(b"weights")
    new_sae._notice(chosen, before)
    assert chosen.ready
    assert drawn


@pytest.mark.slow
def test_an_uploaded_checkpoint_trains_on_its_own_text(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "advance", lambda *_: None)  # run here, below
    app = upload(page, "mine.pt", small_file(), ("mine.txt", ("abcdefghijk" * 4000).encode()))
    app = app.selectbox(key="text").set_value("mine.txt").run()
    app = app.select_slider(key="sae_steps").set_value("300").run()
    app = app.toggle(key="sae_controls").set_value(False).run()
    app = next(button for button in app.button if button.label == "Train").click().run()
    assert not app.exception
    (job,) = jobs.find(session.RUNS)
    plan = saes.plan_of(job)
    assert plan is not None
    assert sae_job.main([part.replace(jobs.FOLDER, str(job.folder)) for part in job.arguments]) == 0
    trained = sae_files.load(plan.out)
    assert trained.card["text"] == "mine.txt"
    assert trained.sae.shape.d == 16
    app = app.run()
    assert not app.exception
    assert app.metric[0].label.startswith("variance explained")
