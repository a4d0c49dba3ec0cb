"""The Train page."""

import json
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from interp_core import bengio, checkpoints, jobs, learning_curves, run_files
from tests.conftest import ROOT
from tests.pages.conftest import LIMIT, said
from ui import runs, session, wording

TINY = {"layers": 2, "heads": 2, "d_model": 16, "context": 16, "steps": 60, "batch": 4}


@pytest.fixture
def page(app: AppTest) -> Iterator[AppTest]:
    yield app.switch_page("pages/train.py").run()
    for job in jobs.find(session.RUNS):
        if job.active:
            jobs.stop(job, grace=1.0)


def press(app: AppTest, label: str) -> AppTest:
    next(button for button in app.button if button.label == label).click()
    return app.run()


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def fill(app: AppTest, text: str = "successors", **numbers: float) -> AppTest:
    """The form of a new run, filled in."""
    if "New run" in labels(app):
        app = press(app, "New run")
    app.selectbox(key="new_text").set_value(text)
    for field, value in numbers.items():
        app.number_input(key=f"new_{field}").set_value(value)
    return app.run()


def until(reached: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not reached():
        assert time.monotonic() - begun < LIMIT
        time.sleep(0.05)


def finished(app: AppTest, name: str) -> AppTest:
    until(lambda: not jobs.read(session.RUNS / name).active)
    return app.run()


def view(app: AppTest, name: str) -> AppTest:
    return app.segmented_control(key="watch").set_value(name).run()


def badge(app: AppTest) -> str:
    return next(str(element.value) for element in app.markdown if "badge[" in str(element.value))


def test_it_opens_on_a_run_that_came_with_the_app(page: AppTest) -> None:
    assert not page.exception
    assert page.selectbox(key="run").value == "induction"
    curves = learning_curves.read(run_files.records(ROOT / "checkpoints" / "induction.pt"))
    assert curves is not None
    assert page.metric[0].value.startswith(f"{curves.table['validation_loss'].iloc[-1]:.2f} ±")
    assert page.metric[1].label == "control: tokens so far"
    assert page.metric[1].value.startswith("3.11 ±")
    assert page.metric[2].value == "800 of 800"
    assert "better than tokens so far" in badge(page)
    assert "run induction, step 800 of 800 · text successors · 64 disjoint windows" in said(page)


@pytest.mark.parametrize("name", ["learning", "heads form", "snapshots"])
def test_every_view_opens(page: AppTest, name: str) -> None:
    app = view(page, name)
    assert not app.exception
    assert len(app.metric) == 3
    assert [button.label for button in app.get("download_button")][-1] == "The whole run (.zip)"


def test_what_formed_is_said_with_its_control(page: AppTest) -> None:
    app = view(page, "heads form")
    said_of_heads = [str(element.value) for element in app.markdown if "badge[" in str(element.value)]
    assert "both heads of an induction circuit are there" in said_of_heads[1]
    assert "Best matching head L1H3" in said(app)
    assert "(untrained 0.0" in said(app)


def test_the_heads_of_a_snapshot_are_those_that_the_library_measures(page: AppTest) -> None:
    from interp_core import induction

    app = view(page, "snapshots")
    app = app.select_slider(key="at").set_value("186").run()
    shown = next(frame.value for frame in app.dataframe if "matching" in frame.value)
    model = checkpoints.load(ROOT / "checkpoints" / "induction" / "step-000186.pt").model
    table = induction.measure_heads(model, 32, 64).table.set_index("head")
    for row in shown.to_dict("records"):
        assert row["matching"] == pytest.approx(table["matched_score"][row["head"]], abs=0.006)
        assert row["previous"] == pytest.approx(table["previous_token_score"][row["head"]], abs=0.006)
    assert shown["matching"].max() > 0.3
    early = app.select_slider(key="at").set_value("62").run()
    assert next(frame.value for frame in early.dataframe if "matching" in frame.value)["matching"].max() < 0.1


@pytest.mark.slow
def test_a_run_from_the_form_to_the_other_pages_and_home(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    app = fill(page, **TINY)
    assert "Start" in labels(app)
    app = press(app, "Start")
    assert not app.exception
    assert "Stop" in labels(app)
    app = finished(app, "circuit")
    out = session.RUNS / "circuit" / "circuit.pt"
    assert app.metric[2].value == "60 of 60"
    assert "Delete it" in labels(app)
    last = run_files.records(out)[-1]
    mean = sum(last["validation_windows"]) / len(last["validation_windows"])
    assert app.metric[0].value.startswith(f"{mean:.2f} ±")
    snippet = next(element.value for element in app.code if "import" in element.value)
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(compile(snippet, "snippet", "exec"), names)
    assert names["record"].validation_loss == pytest.approx(mean, abs=1e-4)
    packed = zipfile.ZipFile(
        BytesIO(
            runs.packed(
                next(r for r in runs.find() if r.name == "circuit"), learning_curves.read(run_files.records(out)).table
            )
        )
    )
    assert {
        "circuit/circuit.pt",
        "circuit/circuit.json",
        "circuit/metrics.csv",
        "circuit/circuit/step-000030.pt",
    } <= set(packed.namelist())
    read = checkpoints.read(
        packed.read("circuit/circuit.pt"),
        "circuit",
        checkpoints.Papers(card=json.loads(packed.read("circuit/circuit.json"))),
    )
    assert read.card["step"] == 60
    atlas = app.switch_page("pages/atlas.py").run()
    atlas = atlas.selectbox(key="checkpoint").set_value("circuit").run()
    assert not atlas.exception
    assert "checkpoint circuit (" in said(atlas)
    atlas = atlas.selectbox(key="step").set_value("30").run()
    assert not atlas.exception
    assert "checkpoint circuit@30 (" in said(atlas)
    assert "circuit/circuit/step-000030.pt" in next(
        element.value for element in atlas.code if "import" in element.value
    )


@pytest.mark.slow
def test_stop_wait_resume_and_delete(page: AppTest) -> None:
    app = press(fill(page, **TINY | {"steps": 20_000}), "Start")
    until(lambda: len(run_files.records(session.RUNS / "circuit" / "circuit.pt")) > 0)
    app = press(fill(app, **TINY), "Start")
    assert not app.exception
    assert "Waiting: place 1 in the line" in "".join(str(info.value) for info in app.info)
    assert "1 waiting" in said(app)
    app = app.selectbox(key="run").set_value("circuit").run()
    app = press(app, "Stop")
    assert {"Resume", "Delete it"} <= set(labels(app))
    stood = app.metric[2].value
    assert stood != "20,000 of 20,000"
    app = finished(app, "circuit-2")
    app = press(app, "Resume")
    assert "Stop" in labels(app)
    app = press(press(app, "Stop"), "Delete it")
    assert not app.exception
    assert not (session.RUNS / "circuit").exists()
    assert app.selectbox(key="run").value == "circuit-2"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"heads": 0}, "a width of 128 cannot be shared among 0 heads"),
        ({"layers": -1}, "layers is -1, expected 1 or more"),
        ({"steps": 0}, "steps 0, batch 64"),
        ({"dropout": 1.5}, "dropout is 1.5, expected at least 0 and below 1"),
        ({"seed": -1}, "the seed is -1, expected 0 or more"),
        ({"matrix_lr": 0.0}, "the learning rates are 0 and 0.02, expected above 0"),
        ({"context": 1}, "context of 1 leaves attention nothing"),
        ({"heads": 3}, "a width of 128 cannot be shared among 3 heads: choose a multiple of 3"),
        ({"d_model": 8192, "heads": 64, "layers": 40}, "parameters are more than the 200,000,000 trained here"),
        ({"batch": 100_000}, "GB of memory, more than the 6 taken here"),
    ],
)
def test_the_impossible_is_refused_with_a_reason(page: AppTest, numbers: dict, words: str) -> None:
    app = fill(page, **numbers)
    assert not app.exception
    assert words in said(app)
    assert next(button for button in app.button if button.label == "Start").disabled
    assert not session.RUNS.exists()


def test_texts_that_cannot_be_learned_say_why_and_others_show_their_characters(page: AppTest) -> None:
    app = fill(page, "tiny-shakespeare")
    assert "tiny Shakespeare is not on this machine" in said(app)
    assert "Fetch tiny Shakespeare (1.1 MB)" in labels(app)
    app = fill(app, "paste your own")
    app = app.text_input(key="new_name").set_value("my-run").run()
    assert "Paste a text on the left" in "".join(str(info.value) for info in app.info)
    app = app.text_area(key="new_paste").set_value("too short").run()
    assert "pasted has 9 characters; a context of 64 needs at least 5,850" in said(app)
    assert app.text_input(key="new_name").value == "my-run"
    app = app.text_area(key="new_paste").set_value("a" * 6000).run()
    assert "one distinct character: there is nothing to predict" in said(app)
    app = app.text_area(key="new_paste").set_value("one sentence again and again. " * 300).run()
    assert "100% of held-out stretches of 32 characters stand word for word in the training part" in said(app)
    app.file_uploader(key="new_file").set_value(("paper.pdf", b"%PDF-1.4 ...", "application/pdf"))
    assert "paper.pdf is not a text" in said(app.run())
    app.file_uploader(key="new_file").set_value(("bad.txt", b"\xff\xfe\x00", "text/plain"))
    assert "bad.txt is not text in UTF-8" in said(app.run())
    app.file_uploader(key="new_file").set_value(
        ("good.txt", "naïve café\r\n".encode() * 900 + "\u200b".encode(), "text/plain")
    )
    app = app.run()
    assert not app.exception
    assert app.selectbox(key="new_text").value == "good.txt"
    assert "10,801 characters, 12 distinct" in said(app)
    odd = next(frame.value for frame in app.dataframe if "why" in frame.value)
    assert list(odd["character"]) == ["\\r", "\\u200b"]
    assert "Windows line ends" in odd["why"].iloc[0]


@pytest.mark.slow
def test_a_text_of_ones_own_is_learned_and_goes_along(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    app = fill(page, "paste your own", **TINY)
    app = app.text_area(key="new_paste").set_value("to be or not to be. " * 300).run()
    app = finished(press(app, "Start"), "circuit")
    assert not app.exception
    assert "text pasted.txt" in said(app)
    card = json.loads((session.RUNS / "circuit" / "circuit.json").read_text())
    assert card["text"]["name"] == "pasted.txt"
    assert card["command"].startswith("python -m interp_core.training --out circuit.pt --file pasted.txt")
    app = view(app, "bits/char")
    assert not app.exception
    assert app.metric[0].label == "circuit, bits a character"
    assert "pasted.txt" in said(app)
    assert len(next(frame.value for frame in app.dataframe if "bits" in frame.value)) == 4
    whole = bengio.train
    monkeypatch.setattr(bengio, "train", lambda tokens, size: whole(tokens, size, steps=20))
    names: dict = {}
    exec(
        compile(next(element.value for element in app.code if "bits_per_char" in element.value), "snippet", "exec"),
        names,
    )
    assert app.metric[0].value == wording.plus_minus(names["rows"][-1].bits)


@pytest.mark.slow
def test_a_run_that_diverges_says_so_and_is_not_resumed(page: AppTest) -> None:
    app = finished(press(fill(page, **TINY, matrix_lr=10.0, other_lr=10.0), "Start"), "circuit")
    assert "diverged" in badge(app)
    assert "lower the learning rates (10, 10)" in said(app)
    assert "Resume" not in labels(app)
    assert "Delete it" in labels(app)


def test_a_link_to_a_run_that_is_not_here_says_so(app: AppTest) -> None:
    app.query_params["run"] = "gone"
    page = app.switch_page("pages/train.py").run()
    assert not page.exception
    assert page.selectbox(key="run").value == "induction"


def test_spoiled_runs_do_not_spoil_the_page(page: AppTest) -> None:
    asked = {"module": "interp_core.training", "submitted": 1.0}
    for name, content in {"a": "{", "b": "{}", "c": json.dumps(asked | {"arguments": ["--unknown"]})}.items():
        (session.RUNS / name).mkdir(parents=True)
        (session.RUNS / name / "job.json").write_text(content)
    lost = ["--text", "successors", "--out", "{folder}/d.pt", "--file", "{folder}/gone.txt"]
    (session.RUNS / "d").mkdir()
    (session.RUNS / "d" / "job.json").write_text(json.dumps(asked | {"arguments": lost}))
    (session.RUNS / "d" / "ended.json").write_text('{"code": 0}')
    for folder in ("c", "b"):
        (session.RUNS / folder / "ended.json").write_text('{"code": 0}')
    app = page.run()
    assert not app.exception
    app = app.selectbox(key="run").set_value("d").run()
    assert not app.exception
    assert "gone.txt" in said(app)


def test_bits_a_character_without_a_text_says_what_to_do(page: AppTest) -> None:
    app = view(page, "bits/char")
    assert not app.exception
    assert "fetch tiny Shakespeare" in "".join(str(info.value) for info in app.info)


@pytest.mark.slow
def test_bits_a_character_of_shakespeare(shakespeare: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "RUNS", tmp_path / "runs")
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=LIMIT).run().switch_page("pages/train.py").run()
    app = view(app, "bits/char")
    assert not app.exception
    assert app.metric[1].value.startswith("3.58 ±")
    assert "3.54" in app.metric[1].help
    app = press(app, "Train the Bengio MLP (20 s)")
    assert not app.exception
    job = jobs.find(session.RUNS)[0]
    until(lambda: not jobs.read(job.folder).active)
    app = app.run()
    assert "beats pair counts, and an MLP that sees three characters by" in badge(app)
    table = next(frame.value for frame in app.dataframe if "bits" in frame.value).set_index("name")["bits"]
    assert list(table.index[:3]) == ["uniform", "unigram counts", "bigram counts"]
    assert table["bigram counts"] == pytest.approx(3.581, abs=0.005)
    assert table["Bengio 2003 MLP, k = 3"] <= 2.86
    assert table["GPT: shakespeare"] <= 2.19
    assert app.metric[0].value.startswith(f"{table['GPT: shakespeare']:.2f} ±")
    app = press(app, f"Delete {job.name}")
    assert not job.folder.exists()
    assert "what three characters can do, the MLP will tell" in badge(app)
