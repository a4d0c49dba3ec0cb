"""Every kind of file that a visitor may bring, through the app."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

from interp_core import bundles
from tests.foreign import from_scratch, gpt2_names, lecture, transformer_lens
from tests.foreign.refused import REFUSED
from tests.pages.conftest import said
from tests.test_checkpoints import saved
from tests.test_layouts import hugging_face
from tests.test_papers import BAD_BUNDLES, CONFIG, META, byte_pairs

TEXT = ("abcdefghijk" * 3 + "kjihgfedcba") * 200
Files = dict[str, bytes]


def bring(app: AppTest, name: str, data: bytes, papers: Files | None = None) -> AppTest:
    """Uploads papers, then a checkpoint, as a visitor does."""
    if papers:
        files = [(paper, content, "application/octet-stream") for paper, content in papers.items()]
        app.file_uploader(key="upload_papers").set_value(files)
    app.file_uploader(key="upload_checkpoint").set_value((name, data, "application/octet-stream"))
    return app.run()


def opened(app: AppTest, page: str, checkpoint: str, text: str) -> AppTest:
    """A page with the choices that a browser would have carried there in the address."""
    app = app.switch_page(f"pages/{page}.py").run()
    if page == "train":
        return app
    app = app.selectbox(key="checkpoint").set_value(checkpoint).run()
    return app.selectbox(key="text").set_value(text).run()


def facts(app: AppTest) -> Any:
    return next(frame.value for frame in app.dataframe if "source" in frame.value).set_index("what")


def zipped_hugging_face() -> bytes:
    module = hugging_face(vocab_size=279)
    return bundles.pack({
        "gpt/pytorch_model.bin": saved(module.state_dict()),
        "gpt/config.json": json.dumps(module.config.to_dict()).encode(),
        "gpt/tokenizer.json": byte_pairs().to_str().encode(),
    })  # fmt: skip


KINDS: dict[str, tuple[str, Callable[[], bytes], Files, str]] = {
    "lecture": ("gpt.pth", lambda: saved(lecture.model().state_dict()), {"input.txt": TEXT.encode()}, "lecture: let's build GPT"),
    "nanoGPT": ("ckpt.pt", lambda: saved(gpt2_names.nanogpt_checkpoint(gpt2_names.nanogpt())), {"meta.pkl": META}, "nanoGPT"),
    "build-nanogpt": (
        "model_19072.pt", lambda: saved(gpt2_names.build_nanogpt_checkpoint(gpt2_names.build_nanogpt())), {}, "build-nanogpt",
    ),
    "minGPT": ("model.bin", lambda: saved(gpt2_names.mingpt().state_dict()), {"config.json": CONFIG}, "minGPT"),
    "Hugging Face": ("gpt.zip", zipped_hugging_face, {}, "Hugging Face GPT-2"),
    "TransformerLens": ("lens.pt", lambda: saved(transformer_lens.model(attn_only=True).state_dict()), {}, "TransformerLens"),
    "Lightning": (
        "epoch=3.ckpt",
        lambda: saved({
            "state_dict": {f"model.{key}": value for key, value in from_scratch.model().state_dict().items()},
            "hyper_parameters": {"n_heads": 4},
        }), {}, "LLMs-from-scratch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_taken(app: AppTest, kind: str) -> None:
    name, make, papers, layout = KINDS[kind]
    app = bring(app, name, make(), papers)
    assert not app.exception
    assert not app.error
    assert app.selectbox(key="checkpoint").value == name.rsplit(".", 1)[0] + " (yours)"
    assert facts(app).loc["layout", "value"].startswith(layout)
    assert facts(app).loc["heads", "value"] == "4"
    sources = {"lecture": "input.txt", "nanoGPT": "meta.pkl", "Hugging Face": "tokenizer.json"}
    assert facts(app).loc["vocabulary", "source"].startswith(sources.get(kind, "unknown"))


def test_a_number_of_heads_is_asked_for_suggested_and_confirmed(app: AppTest) -> None:
    """The shipped Shakespeare model in another project's layout, without a word about its heads."""
    from interp_core import checkpoints, samples
    from tests.conftest import ROOT

    shipped = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    data = saved(as_mingpt(shipped.model))
    text = shipped.tokenizer.decode(samples.own_windows(shipped.model, 200, 0)[:, 1:].flatten().tolist())
    app = bring(app, "mystery.pt", data, {"its.txt": (text + "".join(shipped.tokenizer.vocabulary)).encode()})
    assert not app.exception
    assert "How many heads does a layer of mystery have?" in said(app)
    assert "every other number is clearly worse" in said(app)
    assert not app.metric
    assert app.selectbox(key="ask_heads").value == "4"
    app = next(button for button in app.button if button.label == "This is right").click().run()
    assert not app.exception
    assert "How many heads" not in said(app)
    assert facts(app).loc["heads", ["value", "source"]].tolist() == ["4", "your answer"]
    assert "reads this text" in said(app)
    app = opened(app, "atlas", "mystery (yours)", "its.txt")
    assert not app.exception
    assert app.metric[0].value.endswith("of 16")
    assert any("answers={'heads': 4}" in code.value for code in app.code)


def as_mingpt(model: Any) -> dict[str, torch.Tensor]:
    """A model of ours under minGPT's names."""
    ours = model.state_dict()
    theirs = {"transformer.wte.weight": ours["tok.weight"], "transformer.wpe.weight": ours["pos.weight"]}
    theirs["lm_head.weight"] = ours["head.weight"]
    for kind in ("weight", "bias"):
        theirs[f"transformer.ln_f.{kind}"] = ours[f"lnf.{kind}"]
        for layer in range(model.config.layers):
            block = f"transformer.h.{layer}"
            fused = [ours.get(f"blocks.{layer}.attn.{name}.{kind}") for name in ("query", "key", "value")]
            width = model.config.d_model
            theirs[f"{block}.attn.c_attn.{kind}"] = torch.cat([torch.zeros(width) if p is None else p for p in fused])
            theirs[f"{block}.attn.c_proj.{kind}"] = ours[f"blocks.{layer}.attn.proj.{kind}"]
            for name, part in (("ln_1", "ln1"), ("ln_2", "ln2"), ("mlp.c_fc", "mlp.fc"), ("mlp.c_proj", "mlp.proj")):
                theirs[f"{block}.{name}.{kind}"] = ours[f"blocks.{layer}.{part}.{kind}"]
    return theirs


def test_without_a_text_the_number_is_asked_for_without_a_suggestion(app: AppTest) -> None:
    app = bring(app, "gpt.pt", saved(gpt2_names.mingpt().state_dict()))
    assert not app.exception
    assert "How many heads does a layer of gpt have?" in said(app)
    assert "Choose the text that it was trained on" in said(app)
    assert app.selectbox(key="ask_heads").value is None
    app = next(button for button in app.button if button.label == "This is right").click().run()
    assert "How many heads" in said(app)
    app.selectbox(key="ask_heads").set_value("8")
    app = next(button for button in app.button if button.label == "This is right").click().run()
    assert not app.exception
    assert facts(app).loc["heads", "value"] == "8"
    app = app.selectbox(key="checkpoint").set_value("shakespeare").run()
    assert not app.exception
    assert "16 heads" in said(app) or app.selectbox(key="checkpoint").value == "shakespeare"


def test_what_the_file_does_not_say_can_be_answered_otherwise(app: AppTest) -> None:
    app = bring(app, "gpt.pth", saved(lecture.model().state_dict()), {"input.txt": TEXT.encode()})
    assert facts(app).loc["activation", "source"] == "assumed: lecture: let's build GPT's"
    app = app.toggle(key="effects_of_choices").set_value(True).run()
    changes = [frame.value for frame in app.dataframe if "change" in frame.value]
    assert [len(frame) for frame in changes] == [3, 3, 4]
    app.selectbox(key="ask_score_scale").set_value("1/√d_model")
    app = next(button for button in app.button if button.label == "Read it this way").click().run()
    assert not app.exception
    assert facts(app).loc["score_scale", ["value", "source"]].tolist() == ["0.25", "your answer"]


@pytest.mark.parametrize("name", ["TinyStories", "Llama", "bigram.py", "adapter"])
def test_other_families_are_refused_and_nothing_is_lost(app: AppTest, name: str) -> None:
    weights, words = REFUSED[name]
    app = bring(app, "model.pt", saved(weights))
    assert not app.exception
    assert len(app.error) == 1
    assert words in app.error[0].value
    assert app.selectbox(key="checkpoint").value == "shakespeare"


@pytest.mark.parametrize("name", ["no weights", "shards", "bomb", "pickled code"])
def test_bad_archives_are_refused_and_nothing_is_lost(app: AppTest, name: str) -> None:
    data, message = BAD_BUNDLES[name]
    app = bring(app, "model.zip", data)
    assert not app.exception
    assert message in app.error[0].value
    assert app.selectbox(key="checkpoint").value == "shakespeare"


def test_bad_papers_are_refused_and_nothing_is_lost(app: AppTest) -> None:
    data = saved(gpt2_names.mingpt().state_dict())
    evil = pickle.dumps({"stoi": pickle.PickleError})
    for papers, message in (
        ({"meta.pkl": evil}, "could run code"),
        ({"vocab.json": b'{"ab": 0, "c": 1}'}, "merges.txt is missing"),
    ):
        app = bring(app, "model.pt", data, papers)
        assert not app.exception
        assert message in app.error[0].value
        assert app.selectbox(key="checkpoint").value == "shakespeare"


MODELS: dict[str, tuple[str, Callable[[], bytes], Files]] = {
    "byte pairs": ("gpt.zip", zipped_hugging_face, {"its.txt": b"the cat sat on the mat, and the dog sat there too. " * 300}),
    "attention only": (
        "lens.pt", lambda: saved(transformer_lens.model(attn_only=True).state_dict()), {"meta.pkl": META, "its.txt": TEXT.encode()},
    ),
    "one layer, one head": (
        "gpt.pt", lambda: saved(gpt2_names.nanogpt_checkpoint(gpt2_names.nanogpt(layers=1, heads=1)) | {"model_args": {"n_head": 1}}),
        {"meta.pkl": META, "its.txt": TEXT.encode()},
    ),
}  # fmt: skip
PAGES = ("atlas", "ablation", "induction", "probing", "sae", "ged", "train")


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_every_page_works_on_every_model_that_loads(app: AppTest, kind: str) -> None:
    name, make, papers = MODELS[kind]
    app = bring(app, name, make(), papers)
    assert not app.exception
    assert app.selectbox(key="text").value == "its.txt"
    chosen = app.selectbox(key="checkpoint").value
    for page in PAGES:
        app = opened(app, page, chosen, "its.txt")
        assert not app.exception, page
        assert not app.error, page
        if page != "train":
            assert f"checkpoint {chosen} (" in said(app) or page == "sae"


def test_pieces_are_shown_as_text_with_their_spaces(app: AppTest) -> None:
    name, make, papers = MODELS["byte pairs"]
    app = bring(app, name, make(), papers)
    app = opened(app, "atlas", "gpt (yours)", "its.txt")
    app = app.segmented_control(key="view").set_value("your sentence").run()
    assert not app.exception
    assert app.segmented_control(key="view").value == "your sentence"
    drawn = "".join(str(chart.proto) for chart in app.get("vega_lite_chart"))
    assert "\\342\\220\\243" in drawn, "a visible space, as the printed table has it"
