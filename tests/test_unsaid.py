"""What a file does not say, suggested by the loss of the right answer's own samples."""

from dataclasses import replace

import pytest
import torch

from interp_core import checkpoints, samples, unsaid
from interp_core.model import GPT, ModelConfig, forward, token_losses
from tests.conftest import ROOT, SMALL, random_model, random_tokens


@pytest.fixture(scope="module")
def trained() -> tuple[GPT, torch.Tensor]:
    """A trained model, and windows of the text that it writes."""
    model = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt").model
    return model, samples.own_windows(model, 48, seed=0)


def test_the_loss_suggests_the_number_of_heads(trained: tuple[GPT, torch.Tensor]) -> None:
    model, windows = trained
    told: list[float] = []
    found = unsaid.effects(
        unsaid.with_answers(model, {"heads": 8}), "heads", windows, 0, told.append, against_lowest=True
    )
    assert list(found.choice) == ["1", "2", "4", "8", "16", "32", "64", "128"]
    assert unsaid.suggestion(found) == ("4", True)
    assert found.loc[found.chosen, "choice"].tolist() == ["8"]
    assert found.loc[found.choice == "4", "change"].item() == 0
    assert told[-1] == 1


def test_without_training_nothing_is_suggested_clearly() -> None:
    model = random_model(size=0.02)
    found = unsaid.effects(model, "heads", samples.own_windows(model, 32, 0), against_lowest=True)
    assert not unsaid.suggestion(found)[1]


def test_the_loss_separates_relu_and_scales_but_not_the_gelus(trained: tuple[GPT, torch.Tensor]) -> None:
    model, windows = trained
    found = unsaid.effects(model, "activation", windows).set_index("choice")
    assert found.loc["exact GELU", "chosen"]
    assert found.loc["ReLU", "change_low"] > 0.005
    assert abs(found.loc["tanh GELU", "change"]) < 0.002
    scales = unsaid.effects(model, "score_scale", windows).set_index("choice")
    assert scales.loc["1/√d_model", "change_low"] > 0.005
    assert scales.loc["not scaled", "change_low"] > 0.005
    epsilons = unsaid.effects(model, "norm_eps", windows).set_index("choice")
    assert epsilons["change"].abs().max() < 0.002


def test_a_choice_is_the_model_of_that_config_on_the_same_weights() -> None:
    model, tokens = random_model(), random_tokens()
    for answers in ({"heads": 4}, {"activation": "relu"}, {"score_scale": 1.0}, {"norm_eps": 1e-3}):
        other = unsaid.with_answers(model, answers)
        width = {"d_head": 4} if "heads" in answers else {}
        expected = GPT(replace(SMALL, **answers, **width), 0)
        expected.load_state_dict(model.state_dict())
        assert torch.equal(forward(other, tokens).logits, forward(expected, tokens).logits)
        assert other.tok.weight.data_ptr() == model.tok.weight.data_ptr()
    assert model.config == SMALL


def test_an_unusual_value_stays_among_the_choices() -> None:
    model = random_model(replace(SMALL, norm_eps=3e-4))
    found = unsaid.effects(model, "norm_eps", random_tokens(length=12, batch=8))
    assert found.loc[found.chosen, "choice"].tolist() == ["0.0003"]
    assert found.loc[found.chosen, "nats"].item() == pytest.approx(
        float(token_losses(model, random_tokens(length=12, batch=8)).mean()), abs=1e-5
    )


def test_bad_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="d_model is not asked for"):
        unsaid.options(SMALL, "d_model")
    with pytest.raises(ValueError, match="3 heads do not divide 16"):
        unsaid.with_answers(random_model(), {"heads": 3})


def test_tied_heads_stay_tied() -> None:
    config: ModelConfig = replace(SMALL, tied_head=True)
    other = unsaid.with_answers(random_model(config), {"activation": "relu"})
    assert other.head.weight is other.tok.weight
