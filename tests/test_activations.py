import pytest
import torch

from interp_core import activations
from interp_core.model import forward
from tests.conftest import SMALL, random_model, random_tokens


def test_rows_are_the_taps_of_the_forward_pass_with_their_places() -> None:
    model, windows = random_model(), random_tokens(batch=7)
    told: list[float] = []
    found = activations.gather(model, windows, ["resid_post.1", "z.2", "mlp_post.0"], told.append)
    trace = forward(model, windows, taps=("resid_post.1", "z.2", "mlp_post.0"))
    assert told[-1] == 1.0
    for row in (0, 5, 40, 83):
        window, position = divmod(row, SMALL.context)
        rows = found["resid_post.1"]
        assert (rows.windows[row], rows.positions[row], rows.tokens[row]) == (
            window,
            position,
            windows[window, position],
        )
        torch.testing.assert_close(rows.values[row], trace["resid_post.1"][window, position])
        torch.testing.assert_close(found["z.2"].values[row], trace["z.2"][window, position].flatten())
    assert found["mlp_post.0"].values.shape == (7 * SMALL.context, SMALL.d_mlp)


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model, windows = random_model(), random_tokens(batch=7)
    whole = activations.gather(model, windows, ["resid_post.2"])["resid_post.2"].values
    monkeypatch.setattr(activations, "BATCH_TOKENS", 2 * SMALL.context)
    torch.testing.assert_close(activations.gather(model, windows, ["resid_post.2"])["resid_post.2"].values, whole)


@pytest.mark.parametrize("site", ["pattern.0", "logits"])
def test_what_is_no_vector_of_a_position_is_refused(site: str) -> None:
    with pytest.raises(ValueError, match=f"{site}: expected sites that hold a vector"):
        activations.gather(random_model(), random_tokens(), [site])
