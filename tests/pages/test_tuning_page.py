"""The Tuning page: the shipped sweep, the form, a sweep from the form, and rewards."""

from types import SimpleNamespace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from interp_core import jobs, lora_job
from tests.pages.conftest import said
from tests.pages.test_upload_page import MODELS, bring
from ui import session, tunings
from ui.sections import best_of_n


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_of_n, "SAMPLES", ("512",))
    monkeypatch.setattr(best_of_n, "LENGTHS", ("32",))


@pytest.fixture
def page(app: AppTest) -> AppTest:
    return app.switch_page("pages/tuning.py").run()


@pytest.fixture
def rewarded(page: AppTest) -> AppTest:
    return page.segmented_control(key="track").set_value("best of n").run()


@pytest.mark.parametrize("view", ["quality", "forgetting", "spectrum", "heads"])
def test_every_view_of_the_shipped_sweep_opens(page: AppTest, view: str) -> None:
    app = page.segmented_control(key="compare").set_value(view).run()
    assert not app.exception
    assert not app.error
    assert app.metric[0].label.startswith("rank ")
    assert app.metric[1].label == "all weights"
    assert app.metric[2].label.startswith("control: ")
    assert "tuned on prose" in said(app)
    assert "directions" in said(app) or "low rank, too" in said(app)
    assert "None" not in [str(element.value) for element in app.markdown]


def test_the_page_shows_what_the_file_says(page: AppTest) -> None:
    code = next(element.value for element in page.code if "import" in element.value)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    row = names["table"].set_index("variant").loc["all weights"]
    assert page.metric[1].value.startswith(f"{row.gain_nats:+.3f} ±")


def test_a_sweep_from_the_form_is_a_job(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict = {}

    def submit(root: object, name: str, module: str, arguments: list[str], given: dict) -> object:
        taken.update(name=name, module=module, arguments=arguments, given=given)
        raise jobs.JobError("the line is full")

    monkeypatch.setattr(jobs, "submit", submit)
    app = page.selectbox(key="tuning").set_value("tune anew").run()
    assert not app.exception
    assert "python-docs" in app.selectbox(key="tune_target").options
    app = app.selectbox(key="tune_target").set_value("python-docs").run()
    assert "are not among the 65" in app.warning[-1].value
    assert not [button for button in app.button if button.label == "Tune"]
    app = app.checkbox(key="tune_drop").check().run()
    app = next(button for button in app.button if button.label == "Tune").click().run()
    assert not app.exception
    assert "the line is full" in app.error[0].value
    plan = lora_job.of_arguments(taken["arguments"])
    assert taken["module"] == "interp_core.lora_job"
    assert plan.target == "python-docs"
    assert plan.targets == ("queries", "values")
    assert set(taken["given"]) == {"base.pt", "base.json", "tokens.safetensors"}


@pytest.mark.parametrize("view", ["reward and cost", "price", "exploit"])
def test_every_view_of_a_reward_opens(rewarded: AppTest, view: str) -> None:
    app = rewarded.segmented_control(key="judge").set_value(view).run()
    assert not app.exception
    assert not app.error
    assert app.metric[0].label == "reward of the best of 16"
    assert "bound 1.84" in app.metric[1].label
    assert "512 samples of 32 characters" in said(app)


@pytest.mark.parametrize("reward", [*best_of_n.PRESETS, best_of_n.OWN])
def test_every_reward_can_be_pleased(rewarded: AppTest, reward: str) -> None:
    app = rewarded.selectbox(key="reward").set_value(reward).run()
    assert not app.exception
    assert not app.error
    alone = app.select_slider(key="best").set_value("1").run()
    assert not alone.exception
    assert alone.metric[1].value == "0.00 ±0.00"


def test_a_reward_costs_what_the_library_says(rewarded: AppTest) -> None:
    code = next(element.value for element in rewarded.code if "import" in element.value)
    names: dict = {}
    exec(compile(code, "snippet", "exec"), names)
    row = names["best"].set_index("n").loc[16]
    assert rewarded.metric[0].value.startswith(f"{row.reward:.2f} ±")
    assert rewarded.metric[1].value.startswith(f"{row.kl:.2f} ±")
    control = float(rewarded.metric[2].value.split(" ±")[0])
    assert abs(control - names["scores"].mean()) < 4 * names["scores"].std() / np.sqrt(512)


@pytest.mark.slow
def test_pieces_can_be_tuned_and_rewarded(app: AppTest) -> None:
    name, make, papers = MODELS["byte pairs"]
    app = bring(app, name, make(), papers)
    app = app.switch_page("pages/tuning.py").run()
    app = app.selectbox(key="checkpoint").set_value("gpt (yours)").run()
    app = app.selectbox(key="text").set_value("its.txt").run()
    assert not app.exception
    assert [button.label for button in app.button if button.label == "Tune"]
    app = app.segmented_control(key="track").set_value("best of n").run()
    assert not app.exception
    assert "samples of 12 tokens" in said(app)


def test_speakers_and_forms_are_offered_of_a_play(offline: None, monkeypatch: pytest.MonkeyPatch) -> None:
    play = "\n\n".join(["ROMEO:\nBut soft\nWhat light", "NURSE:\nPeace, I am\nso old."] * 600)
    bench = SimpleNamespace(
        checkpoint=SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda tokens: play)),
        text=SimpleNamespace(name="play.txt", validation=np.zeros(3)),
    )
    monkeypatch.setattr(tunings.cache, "brought_texts", lambda: {"mine.txt": "abc"})
    offered = tunings.offered(bench)  # type: ignore[arg-type]
    assert offered[:4] == ["prose", "verse", "speaker ROMEO", "speaker NURSE"]
    assert "mine.txt" in offered
    assert session.TUNING == "tuning"


def test_a_sweep_of_the_same_name_as_the_shipped_one_is_its_own(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = next(option for option in page.selectbox(key="tuning").options if option.endswith(tunings.SHIPPED))
    job = SimpleNamespace(
        module=tunings.MODULE, name=shipped.removesuffix(tunings.SHIPPED), folder=None, active=False, arguments=()
    )
    of = next(iter(tunings.session.FOLDER.glob("*.tuning.json")))
    plan = SimpleNamespace(of=lora_job.read(of).papers["checkpoint"], results=of, out=of.with_name("none.pt"))
    monkeypatch.setattr(jobs, "find", lambda root: [job])
    monkeypatch.setattr(jobs, "look", lambda folder: None)
    monkeypatch.setattr(tunings, "_plan_of", lambda job: plan)
    app = page.run()
    assert not app.exception
    assert app.selectbox(key="tuning").options == [job.name, shipped, "tune anew"]
