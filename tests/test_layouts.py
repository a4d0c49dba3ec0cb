"""Every layout against an independent model: Hugging Face's own for GPT-2, for the others those of `tests/foreign`."""

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from interp_core import bundles, checkpoints, layouts
from interp_core.checkpoints import Checkpoint, CheckpointError, HeadsMissing, Papers
from interp_core.model import forward
from tests.foreign import from_scratch, gpt2_names, lecture, scramble, transformer_lens
from tests.foreign.refused import LLMC, REFUSED

HEADS = {"heads": 4}


def saved(thing: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def tokens(length: int = 12) -> Tensor:
    return torch.randint(11, (5, length), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def furthest(checkpoint: Checkpoint, module: nn.Module) -> float:
    """The largest difference between two models' logits, on whole and on short sequences."""
    found = []
    for length in (12, 5):
        theirs = module(tokens(length))
        theirs = theirs if isinstance(theirs, Tensor) else theirs.logits
        found.append(float((forward(checkpoint.model, tokens(length)).logits - theirs).abs().max()))
    return max(found)


def hugging_face(**options: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 16,
        "vocab_size": 11,
        "n_positions": 12,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scramble(transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **options})))


def without_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix("transformer."): value for key, value in state.items() if not key.startswith("lm_head")}


def old_hugging_face(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Files of 2019 and after carried their masks."""
    mask = torch.tril(torch.ones(12, 12, dtype=torch.uint8)).view(1, 1, 12, 12)
    extra = {f"transformer.h.{layer}.attn.bias": mask for layer in (0, 1)}
    extra |= {f"transformer.h.{layer}.attn.masked_bias": torch.tensor(-1e4) for layer in (0, 1)}
    return {**state, **extra}


# What is in the file, the model that it is of, and what a person must add.
Case = tuple[Callable[[nn.Module], object], Callable[[], nn.Module], dict[str, Any], str]
state = nn.Module.state_dict
CASES: dict[str, Case] = {
    "lecture": (state, lecture.model, {}, "lecture"),
    "lecture, scores by width": (state, lambda: lecture.model(scale_by_width=True), {"score_scale": 0.25}, "lecture"),
    "lecture, one head": (state, lambda: lecture.model(heads=1), {}, "lecture"),
    "nanoGPT": (gpt2_names.nanogpt_checkpoint, gpt2_names.nanogpt, {}, "nanoGPT"),
    "nanoGPT, compiled": (lambda m: gpt2_names.nanogpt_checkpoint(m, True), gpt2_names.nanogpt, {}, "nanoGPT"),
    "nanoGPT, no biases": (gpt2_names.nanogpt_checkpoint, lambda: gpt2_names.nanogpt(bias=False), {}, "nanoGPT"),
    "nanoGPT, weights only": (state, lambda: gpt2_names.nanogpt(buffers=True), HEADS, "nanoGPT"),
    "nanoGPT of 2022": (state, lambda: gpt2_names.nanogpt(tanh=True), {**HEADS, "activation": "gelu_tanh"}, "nanoGPT"),
    "nanoGPT, one layer": (state, lambda: gpt2_names.nanogpt(layers=1), HEADS, "nanoGPT"),
    "minGPT": (state, gpt2_names.mingpt, HEADS, "minGPT"),
    "build-nanogpt": (gpt2_names.build_nanogpt_checkpoint, gpt2_names.build_nanogpt, {}, "build-nanogpt"),
    "TransformerLens": (state, transformer_lens.model, {}, "TransformerLens"),
    "TransformerLens, folded norms": (state, lambda: transformer_lens.model(norm="LNPre"), {}, "TransformerLens"),
    "TransformerLens, no norms": (state, lambda: transformer_lens.model(norm=None), {"norm": "none"}, "TransformerLens"),
    "TransformerLens, attention only": (state, lambda: transformer_lens.model(attn_only=True), {}, "TransformerLens"),
    "TransformerLens, wide heads": (state, lambda: transformer_lens.model(d_head=6, heads=3), {}, "TransformerLens"),
    "TransformerLens, ReLU, scaled": (
        state, lambda: transformer_lens.model(activation="relu", attn_scale=1.0), {"activation": "relu", "score_scale": 1.0},
        "TransformerLens",
    ),
    "LLMs-from-scratch": (state, from_scratch.model, HEADS, "LLMs-from-scratch"),
    "LLMs-from-scratch, biases": (
        lambda m: {"model_state_dict": m.state_dict(), "optimizer_state_dict": {}},
        lambda: from_scratch.model(qkv_bias=True), HEADS, "LLMs-from-scratch",
    ),
    "Hugging Face": (state, hugging_face, HEADS, "Hugging Face GPT-2"),
    "Hugging Face, no prefix": (lambda m: without_prefix(m.state_dict()), hugging_face, HEADS, "Hugging Face GPT-2"),
    "Hugging Face, with masks": (lambda m: old_hugging_face(m.state_dict()), hugging_face, HEADS, "Hugging Face GPT-2"),
    "Hugging Face, untied": (state, lambda: hugging_face(tie_word_embeddings=False), HEADS, "Hugging Face GPT-2"),
}  # fmt: skip
WRAPPERS: dict[str, Callable[[dict[str, Tensor]], object]] = {
    "DDP": lambda weights: {f"module.{key}": value for key, value in weights.items()},
    "compiled": lambda weights: {f"_orig_mod.{key}": value for key, value in weights.items()},
    "compiled inside DDP": lambda weights: {f"module._orig_mod.{key}": value for key, value in weights.items()},
    "one block compiled": lambda weights: {key.replace(".0.", ".0._orig_mod.", 1): v for key, v in weights.items()},
    "Lightning": lambda weights: {
        "epoch": 3, "global_step": 100, "pytorch-lightning_version": "2.4",
        "state_dict": {f"model.{key}": value for key, value in weights.items()},
        "hyper_parameters": {"n_head": 4, "lr": 3e-4}, "optimizer_states": [{}], "callbacks": {},
    },
    "Lightning, another attribute": lambda weights: {
        "state_dict": {f"gpt.{key}": value for key, value in weights.items()}, "hyper_parameters": {"config": {"n_head": 4}},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_an_independent_model(name: str) -> None:
    pack, make, answers, layout = CASES[name]
    module = make()
    checkpoint = checkpoints.read(saved(pack(module)), name, answers=answers)
    assert checkpoint.layout.startswith(layout)
    assert furthest(checkpoint, module) < 1e-4


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ["lecture", "minGPT", "TransformerLens", "LLMs-from-scratch", "Hugging Face"])
def test_wrappers_around_any_layout_are_taken_off(name: str, wrapper: str) -> None:
    _, make, answers, _ = CASES[name]
    module = make()
    answers = {} if wrapper.startswith("Lightning") else answers
    assert (
        furthest(checkpoints.read(saved(WRAPPERS[wrapper](module.state_dict())), name, answers=answers), module) < 1e-4
    )


def _swapped(weights: dict[str, Tensor], one: str, other: str) -> dict[str, Tensor]:
    keys = {key: key.replace(one, "\0").replace(other, one).replace("\0", other) for key in weights}
    return {new: weights[old] for old, new in keys.items()}


def _thirds(weights: dict[str, Tensor], order: tuple[int, int, int], dim: int = 0) -> dict[str, Tensor]:
    def mixed(value: Tensor) -> Tensor:
        parts = value.chunk(3, dim if value.ndim == 2 else 0)
        return torch.cat([parts[i] for i in order], dim if value.ndim == 2 else 0)

    return {key: mixed(value) if "c_attn" in key else value for key, value in weights.items()}


def _without(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {key: torch.zeros_like(value) if part in key else value for key, value in weights.items()}


def _transposed(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {key: value.T.contiguous() if part in key else value for key, value in weights.items()}


MISTAKES: dict[str, tuple[str, Callable[[dict[str, Tensor]], dict[str, Tensor]], dict[str, Any]]] = {
    "q and k swapped, fused": ("minGPT", lambda w: _thirds(w, (1, 0, 2)), HEADS),
    "q and k swapped, Conv1D": ("Hugging Face", lambda w: _thirds(w, (1, 0, 2), 1), HEADS),
    "q and k swapped, apart": ("LLMs-from-scratch", lambda w: _swapped(w, "W_query", "W_key"), HEADS),
    "q and k swapped, a head each": ("lecture", lambda w: _swapped(w, ".query.", ".key."), {}),
    "q and k swapped, head dimension": ("TransformerLens", lambda w: _swapped(w, "_Q", "_K"), {}),
    "square output transposed": ("Hugging Face", lambda w: _transposed(w, "attn.c_proj.weight"), HEADS),
    "square output transposed, Linear": ("minGPT", lambda w: _transposed(w, "attn.c_proj.weight"), HEADS),
    "square query transposed": ("LLMs-from-scratch", lambda w: _transposed(w, "W_query.weight"), HEADS),
    "fused bias dropped": ("Hugging Face", lambda w: _without(w, "c_attn.bias"), HEADS),
    "norm biases dropped": ("minGPT", lambda w: _without(w, "ln_1.bias"), HEADS),
    "last norm's bias dropped": ("LLMs-from-scratch", lambda w: _without(w, "final_norm.shift"), HEADS),
    "head's bias dropped": ("lecture", lambda w: _without(w, "lm_head.bias"), {}),
    "value bias dropped": ("TransformerLens", lambda w: _without(w, "b_V"), {}),
    "output bias dropped": ("TransformerLens", lambda w: _without(w, "b_O"), {}),
    "norms swapped": ("minGPT", lambda w: _swapped(w, "ln_1", "ln_2"), HEADS),
    "two heads": ("Hugging Face", lambda w: w, {"heads": 2}),
    "eight heads": ("minGPT", lambda w: w, {"heads": 8}),
    "ReLU for GELU": ("LLMs-from-scratch", lambda w: w, {**HEADS, "activation": "relu"}),
    "exact for tanh GELU": ("Hugging Face", lambda w: w, {**HEADS, "activation": "gelu"}),
    "another epsilon": ("Hugging Face", lambda w: w, {**HEADS, "norm_eps": 1e-3}),
    "unscaled scores": ("minGPT", lambda w: w, {**HEADS, "score_scale": 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_comparison_would_notice(name: str) -> None:
    """Each of the mistakes that load cleanly moves the logits by more than the tolerance of the tests above."""
    case, change, answers = MISTAKES[name]
    module = CASES[case][1]()
    wrong = checkpoints.read(saved(change(module.state_dict())), name, answers=answers)
    assert furthest(wrong, module) > 2e-4


@pytest.mark.parametrize("name", CASES)
def test_exporting_to_the_courses_layout_round_trips_bit_by_bit(name: str, tmp_path: Path) -> None:
    pack, make, answers, _ = CASES[name]
    model = checkpoints.read(saved(pack(make())), name, answers=answers).model
    back = checkpoints.save(tmp_path / "ours.pt", model, None, {}).model
    assert back.config == model.config
    ours, theirs = back.state_dict(), model.state_dict()
    assert sorted(ours) == sorted(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert torch.equal(forward(back, tokens()).logits, forward(model, tokens()).logits)
    again = layouts.write(layouts.read(layouts.write(model), answers={"heads": model.config.heads}).model)
    assert all(torch.equal(value, again[key]) for key, value in layouts.write(model).items())


CONFIGS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "exact GELU": {"activation_function": "gelu"},
    "ReLU": {"activation_function": "relu"},
    "another epsilon": {"layer_norm_epsilon": 1e-3},
    "scores not scaled": {"scale_attn_weights": False},
    "scores by inverse layer": {"scale_attn_by_inverse_layer_idx": True},
    "narrow MLP": {"n_inner": 40},
    "untied": {"tie_word_embeddings": False},
    "two heads": {"n_head": 2},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_what_hugging_face_saves_is_read_with_its_config(name: str, packed: bool, tmp_path: Path) -> None:
    module = hugging_face(**CONFIGS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.save_pretrained(tmp_path / "gpt")
    source = tmp_path / "gpt"
    if packed:
        source = tmp_path / "gpt.zip"
        files = {f"gpt/{path.name}": path.read_bytes() for path in (tmp_path / "gpt").iterdir()}
        source.write_bytes(bundles.pack(files))
    checkpoint = checkpoints.load(source)
    assert checkpoints.find(tmp_path)[-1] == source
    assert furthest(checkpoint, module) < 1e-4
    assert not {"heads", "activation", "norm_eps"} & set(checkpoint.unsaid)


def test_a_file_of_ours_loads_in_hugging_face_again() -> None:
    """The way back: what was read, written by the names and orientation of theirs, gives their model's logits."""
    module = hugging_face()
    model = checkpoints.read(saved(module.state_dict()), "x", answers=HEADS).model
    other = hugging_face(initializer_range=0.5)
    theirs, ours = other.state_dict(), model.state_dict()
    theirs["transformer.wte.weight"] = theirs["lm_head.weight"] = ours["tok.weight"]
    theirs["transformer.wpe.weight"] = ours["pos.weight"]
    for kind in ("weight", "bias"):
        theirs[f"transformer.ln_f.{kind}"] = ours[f"lnf.{kind}"]
        for layer in range(2):
            block, attn = f"transformer.h.{layer}", f"blocks.{layer}.attn"
            fused = torch.cat([ours[f"{attn}.{name}.{kind}"] for name in ("query", "key", "value")])
            for name, value in (
                ("attn.c_attn", fused), ("attn.c_proj", ours[f"{attn}.proj.{kind}"]),
                ("mlp.c_fc", ours[f"blocks.{layer}.mlp.fc.{kind}"]), ("mlp.c_proj", ours[f"blocks.{layer}.mlp.proj.{kind}"]),
            ):  # fmt: skip
                theirs[f"{block}.{name}.{kind}"] = value.T if value.ndim == 2 else value
            theirs[f"{block}.ln_1.{kind}"] = ours[f"blocks.{layer}.ln1.{kind}"]
            theirs[f"{block}.ln_2.{kind}"] = ours[f"blocks.{layer}.ln2.{kind}"]
    other.load_state_dict(theirs)
    with torch.no_grad():
        torch.testing.assert_close(other(tokens()).logits, module(tokens()).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_other_families_are_refused_by_name(name: str) -> None:
    weights, words = REFUSED[name]
    for data in (saved(weights), safetensors.torch.save(weights), saved({"model": weights, "step": 3})):
        with pytest.raises(CheckpointError, match=f"This is {words}.*it would need"):
            checkpoints.read(data, name)


def test_a_llm_c_file_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"a llm\.c file"):
        checkpoints.read(LLMC, "gpt2_124M.bin")


@pytest.mark.parametrize("name", ["nanoGPT, weights only", "minGPT", "LLMs-from-scratch", "Hugging Face"])
def test_a_missing_number_of_heads_is_asked_for(name: str) -> None:
    pack, make, _, _ = CASES[name]
    with pytest.raises(HeadsMissing, match="does not say how many heads") as raised:
        checkpoints.read(saved(pack(make())), name)
    assert raised.value.options == [1, 2, 4, 8, 16]


def _changed(case: str, **changes: Any) -> bytes:
    weights = dict(CASES[case][1]().state_dict())
    for key, value in changes.items():
        weights[key.replace("__", ".")] = value
    return saved(weights)


BAD: dict[str, tuple[bytes, Papers, dict[str, Any], str]] = {
    "surplus": (_changed("minGPT", transformer__h__0__attn__rotary=torch.ones(2)), Papers(), HEADS, "attn.rotary is not known"),
    "lost bias": (
        saved({k: v for k, v in gpt2_names.mingpt().state_dict().items() if k != "transformer.h.1.attn.c_attn.bias"}),
        Papers(), HEADS, "c_attn.bias is missing",
    ),
    "window": (
        _changed("minGPT", transformer__h__1__attn__bias=torch.ones(12, 12).tril().triu(-3)), Papers(), HEADS,
        "h.1.attn.bias is not a causal mask",
    ),
    "RMSNorm": (
        saved({k: v for k, v in transformer_lens.model().state_dict().items() if not k.endswith((".ln1.b", ".ln2.b", "final.b"))}),
        Papers(), {}, "not RMSNorm",
    ),
    "not thirds": (_changed("minGPT", transformer__h__0__attn__c_attn__weight=torch.ones(50, 16)), Papers(), HEADS, "of one size"),
    "heads": (saved(gpt2_names.mingpt().state_dict()), Papers(), {"heads": 3}, "3 heads do not fit 16 rows"),
    "another config": (saved(hugging_face().state_dict()), Papers(settings={"n_layer": 6, "n_head": 4}), {}, "layers = 6, but the weights say 2"),
    "another activation": (
        saved(hugging_face().state_dict()), Papers(settings={"n_head": 4, "activation_function": "silu"}), {}, "activation is silu",
    ),
    "another model": (saved(hugging_face().state_dict()), Papers(settings={"model_type": "opt"}), {}, "model_type = opt"),
    "rotary lens": (
        saved(transformer_lens.model().state_dict()), Papers(settings={"positional_embedding_type": "rotary"}), {}, "= rotary",
    ),
    "lens RMS": (saved(transformer_lens.model().state_dict()), Papers(settings={"normalization_type": "RMS"}), {}, "norm is RMS"),
    "contradiction": (saved(lecture.model().state_dict()), Papers(), {"heads": 2}, "You say heads = 2, but the weights say 4"),
    "dimensions": (_changed("TransformerLens", blocks__1__attn__W_O=torch.ones(16)), Papers(), {}, "has 1 dimensions"),
    "uneven heads": (_changed("TransformerLens", blocks__1__attn__W_Q=torch.ones(2, 16, 8)), Papers(), {}, "different number or width"),
    "another unembedding": (_changed("minGPT", lm_head__weight=torch.ones(12, 16)), Papers(), HEADS, r"lm_head.weight has shape \[12, 16\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_named(name: str) -> None:
    data, papers, answers, message = BAD[name]
    with pytest.raises(CheckpointError, match=message):
        checkpoints.read(data, name, papers, answers=answers)


def test_what_transformer_lens_says_in_its_config_is_followed() -> None:
    module = transformer_lens.model(norm="LNPre", activation="relu", attn_scale=3.0, eps=1e-2)
    settings = {
        "normalization_type": "LNPre", "act_fn": "relu", "attn_scale": 3.0, "eps": 1e-2, "n_heads": 4, "d_head": 4,
        "positional_embedding_type": "standard", "attention_dir": "causal", "n_ctx": 12, "d_vocab": 11,
    }  # fmt: skip
    checkpoint = checkpoints.read(saved(module.state_dict()), "x", Papers(settings=settings))
    assert furthest(checkpoint, module) < 1e-4
    assert checkpoint.unsaid == ()
    plain = checkpoints.read(saved(module.state_dict()), "x")
    assert furthest(plain, module) > 1e-2
    assert set(plain.unsaid) == {"activation", "norm", "norm_eps", "score_scale"}
