"""The forward pass against a second, slower one written here from the formulas, one head and one row at a time."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp_core.attention import attend, attention_pattern, mix
from interp_core.model import GPT, Cache, ModelConfig, forward, sites, token_losses
from tests.conftest import SMALL, random_model, random_tokens

VARIANTS = {
    "course": SMALL,
    "all biases": replace(SMALL, qkv_bias=True, head_bias=True),
    "no biases": replace(SMALL, out_bias=False, mlp_bias=False, norm="weight"),
    "plain norms": replace(SMALL, norm="plain", norm_eps=1e-3),
    "no norms": replace(SMALL, norm="none"),
    "tanh": replace(SMALL, activation="gelu_tanh"),
    "relu": replace(SMALL, activation="relu"),
    "attention only": replace(SMALL, d_mlp=0),
    "tied": replace(SMALL, tied_head=True),
    "wide heads": replace(SMALL, d_head=5, heads=3),
    "own scale": replace(SMALL, score_scale=0.11),
}


def by_hand(model: GPT, tokens: Tensor) -> Tensor:
    """Logits of one sequence, from the weights and the textbook's formulas in double precision."""
    c, w = model.config, {k: v.double() for k, v in model.state_dict().items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", torch.zeros(1).double())

    def norm(x: Tensor, name: str) -> Tensor:
        if c.norm == "none":
            return x
        centred = x - x.mean(-1, keepdim=True)
        x = centred / (centred.square().mean(-1, keepdim=True) + c.norm_eps).sqrt()
        return x * w.get(f"{name}.weight", torch.ones(1)) + w.get(f"{name}.bias", torch.zeros(1))

    def act(x: Tensor) -> Tensor:
        if c.activation == "relu":
            return x.clamp(min=0)
        if c.activation == "gelu":
            return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = w["tok.weight"][tokens] + w["pos.weight"][: len(tokens)]
    for layer in range(c.layers):
        at = f"blocks.{layer}"
        xn = norm(x, f"{at}.ln1")
        q, k, v = (linear(xn, f"{at}.attn.{name}") for name in ("query", "key", "value"))
        mixed = torch.zeros(len(tokens), c.heads * c.d_head).double()
        for head in range(c.heads):
            cols = slice(head * c.d_head, (head + 1) * c.d_head)
            for i in range(len(tokens)):
                scores = k[: i + 1, cols] @ q[i, cols] * (c.score_scale or c.d_head**-0.5)
                mixed[i, cols] = scores.softmax(0) @ v[: i + 1, cols]
        x = x + linear(mixed, f"{at}.attn.proj")
        if c.d_mlp:
            x = x + linear(act(linear(norm(x, f"{at}.ln2"), f"{at}.mlp.fc")), f"{at}.mlp.proj")
    return linear(norm(x, "lnf"), "head")


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_the_formulas(name: str) -> None:
    """In double precision, so that nothing hides behind rounding."""
    model, tokens = random_model(VARIANTS[name]).double(), random_tokens()
    logits = forward(model, tokens).logits
    for row, sequence in zip(logits, tokens, strict=True):
        torch.testing.assert_close(row, by_hand(model, sequence), atol=1e-9, rtol=1e-9)


def test_the_formulas_tell_variants_apart() -> None:
    """The check above would notice a wrong activation, scale or epsilon: each changes the logits."""
    model, tokens = random_model(SMALL), random_tokens()
    right = forward(model, tokens).logits
    for change in ({"activation": "relu"}, {"score_scale": 0.2}, {"norm_eps": 1e-1}, {"norm": "none"}):
        other = GPT(replace(SMALL, **change))
        other.load_state_dict(model.state_dict(), strict="norm" not in change)
        assert (forward(other, tokens).logits - right).abs().max() > 1e-2


def test_fused_and_explicit_attention_agree() -> None:
    model, tokens = random_model(), random_tokens()
    patterns = [f"pattern.{layer}" for layer in range(SMALL.layers)]
    torch.testing.assert_close(
        forward(model, tokens, patterns).logits, forward(model, tokens).logits, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(("query", "key"), [(7, 7), (1, 7), (3, 7)])
def test_fused_and_explicit_attention_agree_behind_a_cache(query: int, key: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 3, 4, generator=generator) for n in (query, key, key))
    torch.testing.assert_close(attend(q, k, v, 0.3), mix(attention_pattern(q, k, 0.3), v))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), length=st.integers(1, SMALL.context), size=st.sampled_from([0.1, 1.0, 5.0]))
def test_pattern_rows_sum_to_one_and_look_back_only(seed: int, length: int, size: float) -> None:
    trace = forward(
        random_model(seed=seed, size=size), random_tokens(length=length, seed=seed), ["pattern.0", "pattern.2"]
    )
    for site in ("pattern.0", "pattern.2"):
        torch.testing.assert_close(trace[site].sum(-1), torch.ones(4, SMALL.heads, length), atol=1e-5, rtol=0)
        assert (trace[site].triu(1) == 0).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), place=st.integers(1, SMALL.context - 1), token=st.integers(0, SMALL.d_vocab - 1))
def test_a_later_token_changes_no_earlier_logit(seed: int, place: int, token: int) -> None:
    model, tokens = random_model(seed=seed), random_tokens(seed=seed)
    changed = tokens.clone()
    changed[:, place] = token
    before, after = forward(model, tokens).logits, forward(model, changed).logits
    torch.testing.assert_close(before[:, :place], after[:, :place])
    moved = changed[:, place] != tokens[:, place]
    assert (before[moved, place] != after[moved, place]).any(-1).all()


@pytest.mark.parametrize("config", [SMALL, VARIANTS["attention only"]])
def test_every_site_can_be_tapped_with_its_shape(config: ModelConfig) -> None:
    model, tokens = random_model(config), random_tokens(batch=2, length=5)
    trace = forward(model, tokens, sites(config))
    assert list(trace.sites) == list(sites(config))
    shapes = {
        "pattern": (2, config.heads, 5, 5), "z": (2, 5, config.heads, config.d_head),
        "q": (2, 5, config.heads, config.d_head), "k": (2, 5, config.heads, config.d_head),
        "v": (2, 5, config.heads, config.d_head), "mlp_post": (2, 5, config.d_mlp), "logits": (2, 5, config.d_vocab),
    }  # fmt: skip
    for site, value in trace.sites.items():
        assert value.shape == shapes.get(site.split(".")[0], (2, 5, config.d_model)), site


def test_the_stream_is_the_sum_of_what_was_written_to_it() -> None:
    trace = forward(random_model(), random_tokens(), sites(SMALL))
    written = trace["embed"] + sum(trace[f"{name}.{layer}"] for layer in range(3) for name in ("attn_out", "mlp_out"))
    torch.testing.assert_close(trace["resid_post.2"], written, atol=1e-5, rtol=1e-5)


def test_zeroing_a_head_by_an_edit_equals_zeroing_its_output_weights() -> None:
    model, tokens = random_model(), random_tokens()

    def zero_head_one(z: Tensor) -> Tensor:
        return torch.cat([z[:, :, :1], torch.zeros_like(z[:, :, 1:])], dim=2)

    edited = forward(model, tokens, edits={"z.1": zero_head_one}).logits
    plain = forward(model, tokens).logits
    model.block(1).attn.proj.weight[:, SMALL.d_head :] = 0
    torch.testing.assert_close(edited, forward(model, tokens).logits, atol=1e-5, rtol=1e-5)
    assert (edited - plain).abs().max() > 0.1


@pytest.mark.parametrize("site", [site for site in sites(SMALL) if site != "logits"])
def test_an_edit_of_any_site_reaches_the_logits_and_its_own_tap(site: str) -> None:
    model, tokens = random_model(), random_tokens()
    plain = forward(model, tokens, [site])
    edited = forward(model, tokens, [site], {site: lambda x: x.flip(0)})
    assert not torch.equal(plain[site], edited[site])
    assert (plain.logits - edited.logits).abs().max() > 1e-3


@pytest.mark.parametrize("site", ["resid_pre.0", "resid_pre.2", "resid_mid.0", "resid_mid.2"])
def test_restarting_from_a_cached_stream_changes_nothing(site: str) -> None:
    model, tokens = random_model(), random_tokens()
    whole = forward(model, tokens, [site, "z.2", "resid_post.2"])
    again = forward(model, None, ["resid_post.2", site], start=(site, whole[site]))
    assert torch.equal(again.logits, whole.logits)
    assert torch.equal(again["resid_post.2"], whole["resid_post.2"])
    assert torch.equal(again[site], whole[site])


@pytest.mark.parametrize("site", ["resid_post.0", "resid_post.2"])
def test_restarting_behind_a_layer_changes_nothing(site: str) -> None:
    model, tokens = random_model(), random_tokens()
    whole = forward(model, tokens, [site])
    assert torch.equal(forward(model, None, start=(site, whole[site])).logits, whole.logits)


def test_stopping_early_gives_the_same_taps_and_no_logits() -> None:
    model, tokens = random_model(), random_tokens()
    taps = ["pattern.0", "z.1"]
    early, whole = forward(model, tokens, taps, stop_early=True), forward(model, tokens, taps)
    assert all(torch.equal(early[tap], whole[tap]) for tap in taps)
    with pytest.raises(KeyError, match=r"logits was not tapped; this trace holds pattern\.0, z\.1"):
        _ = early.logits


def test_a_forward_pass_leaves_no_trace_on_the_model() -> None:
    model, tokens = random_model(), random_tokens()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    forward(model, tokens, sites(SMALL), {"z.0": torch.zeros_like})
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_cache_gives_the_logits_of_the_whole_sequence() -> None:
    model, tokens = random_model(), random_tokens()
    cache = Cache.empty(SMALL, len(tokens))
    parts = [forward(model, part, cache=cache).logits for part in tokens.split([5, 1, 4, 2], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), forward(model, tokens).logits, atol=1e-5, rtol=1e-5)


def test_losses_do_not_depend_on_the_batch() -> None:
    model, windows = random_model(), random_tokens(batch=7)
    torch.testing.assert_close(token_losses(model, windows, batch=2), token_losses(model, windows, batch=7))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t: forward(m, t, ["z.9"]), "unknown site 'z.9'; this model has embed"),
        (lambda m, t: forward(m, t, edits={"q": torch.zeros_like}), "unknown site 'q'"),
        (lambda m, t: forward(m, t.repeat(1, 2)), "24 tokens, but this model's context is 12"),
        (lambda m, t: forward(m, None), "needs tokens"),
        (lambda m, t: forward(m, None, start=("z.0", torch.zeros(1, 1, 16))), "cannot start from 'z.0'"),
        (lambda m, t: forward(m, None, start=("resid_pre.3", torch.zeros(1, 1, 16))), "of a layer below 3"),
        (lambda m, t: replace(SMALL, heads=0), "heads is 0"),
        (lambda m, t: replace(SMALL, d_mlp=-1), "d_mlp is -1"),
        (lambda m, t: replace(SMALL, activation="swish"), "'?activation'?(: '| is ')swish'"),
        (lambda m, t: replace(SMALL, norm="rms"), "'?norm'?(: '| is ')rms'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):  # the tests' type checker may be first
        call(random_model(), random_tokens())


def test_a_new_model_is_seeded_counted_and_at_rest() -> None:
    course = ModelConfig(d_vocab=65, context=64, d_model=128, heads=4, layers=4, d_head=32, d_mlp=512)
    model = GPT(course, seed=3)
    assert model.count() == 816_640
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), GPT(course, seed=3).parameters(), strict=True))
    assert not torch.equal(model.tok.weight, GPT(course, seed=4).tok.weight)
