import numpy as np
import pytest
import torch

from interp_core import copying, induction
from interp_core.copying import Protocol
from interp_core.induction import Circuit
from interp_core.model import GPT, ModelConfig
from tests.conftest import SMALL, random_model
from tests.wired import CONFIG, IDLE_HEAD, MATCHING_HEAD, PREVIOUS_HEAD, wired_induction

HALF = 10


@pytest.fixture(scope="module")
def wired() -> GPT:
    return wired_induction()


@pytest.fixture(scope="module")
def circuit(wired: GPT) -> Circuit:
    return induction.measure_heads(wired, HALF)


def by_head(circuit: Circuit, score: str) -> dict[str, float]:
    return dict(zip(circuit.table["head"], circuit.table[score], strict=True))


def test_the_wired_circuit_is_found(circuit: Circuit) -> None:
    assert (circuit.feeder, circuit.candidate) == (PREVIOUS_HEAD, MATCHING_HEAD)
    assert circuit.peak == (MATCHING_HEAD, 1)
    assert by_head(circuit, "previous_token_score")[PREVIOUS_HEAD] == pytest.approx(1, abs=1e-3)
    assert by_head(circuit, "copying_score")[MATCHING_HEAD] == pytest.approx(1, abs=1e-5)
    assert by_head(circuit, "prefix_matching_score")[IDLE_HEAD] == pytest.approx(1 / HALF, abs=0.05)
    assert by_head(circuit, "matched_score")[IDLE_HEAD] == pytest.approx(0, abs=1e-6)
    joined = circuit.composition.set_index(["lower", "upper"]).loc[(PREVIOUS_HEAD, MATCHING_HEAD)]
    assert joined["k_composition"] == pytest.approx(CONFIG.d_vocab**-0.5, abs=1e-5)
    assert joined["k_composition"] > joined["random_high"] > joined["random_mean"]


def test_attention_is_shared_among_equal_matches(circuit: Circuit, wired: GPT) -> None:
    """What a wired head gives the match is one over the number of earlier places with the same predecessor."""
    expected = []
    for done, half in enumerate(sorted({int(h) for h in np.linspace(HALF / 2, HALF, induction.LENGTHS)})):
        same = copying.conditions(CONFIG.d_vocab, Protocol(half, 2, 32, done))["same"][:, :-1]
        for row in same.tolist():
            shares = []
            for query in range(half, 2 * half - 1):
                before = [row[0], *row[:query]]  # of each position up to the query; position 0 looks at itself
                equal = [place for place in range(query + 1) if before[place] == row[query]]
                shares.append((query - half + 1 in equal) / len(equal))
            expected.append(np.mean(shares))
    assert by_head(circuit, "prefix_matching_score")[MATCHING_HEAD] == pytest.approx(np.mean(expected), abs=1e-4)


def test_a_head_that_looks_a_fixed_distance_back_matches_nothing() -> None:
    """It would have a perfect score on a repeat of one length; several lengths and the unrelated context unmask it."""
    model = wired_induction()
    size = CONFIG.context
    attn, rows = model.block(1).attn, slice(size, 2 * size)
    attn.query.weight[rows] = 0
    attn.key.weight[rows] = 0
    where = slice(CONFIG.d_vocab, CONFIG.d_vocab + size)
    attn.query.weight[rows, where] = 40.0 * torch.eye(size).roll(HALF - 1, 1)
    attn.key.weight[rows, where] = torch.eye(size)
    found = induction.measure_heads(model, HALF)
    assert by_head(found, "prefix_matching_score")[MATCHING_HEAD] > 0.1
    assert by_head(found, "matched_score")[MATCHING_HEAD] == pytest.approx(0, abs=1e-6)


def test_a_shifted_match_is_seen_where_it_is() -> None:
    """Layer 1 looks for the current token itself, not for its successor: a duplicate-token head."""
    model = wired_induction()
    attn, size = model.block(1).attn, CONFIG.context
    rows = slice(size, 2 * size)
    attn.key.weight[rows] = 0
    attn.key.weight[rows, : CONFIG.d_vocab][: CONFIG.d_vocab] = torch.eye(CONFIG.d_vocab)
    found = induction.measure_heads(model, HALF)
    assert found.peak == (MATCHING_HEAD, 0)
    assert found.around(MATCHING_HEAD, 0).low > 0.2
    assert abs(found.match(MATCHING_HEAD).estimate) < 0.1
    profile = found.profile(MATCHING_HEAD).set_index("offset")["attention"]
    assert profile.idxmax() == 0


def test_interventions_break_the_wired_circuit_and_controls_do_not(wired: GPT, circuit: Circuit) -> None:
    protocol = Protocol(half=HALF, sequences=150)
    behaviour = copying.measure(wired, protocol)
    found = induction.intervene(wired, circuit, behaviour, protocol)
    table = found.table.set_index("head")
    assert set(table.index) == {"L0H0", "L0H1", "L1H0", "L1H1"}
    for head in (PREVIOUS_HEAD, MATCHING_HEAD):
        assert table["change_nats_high"][head] < -3
        assert abs(table["gain_nats"][head]) < 0.2
        against = found.against_control(head)
        assert against is not None
        assert against.high < -3
    for head in (IDLE_HEAD, "L1H0"):
        assert table["change_nats"][head] == pytest.approx(0, abs=1e-4)
        assert table["role"][head] == "control"
    assert table["match_left"][PREVIOUS_HEAD] == pytest.approx(0, abs=0.02)  # the matching head is blind without it
    assert table["match_left"][IDLE_HEAD] > 0.4


def test_an_edited_pass_equals_edited_weights(wired: GPT) -> None:
    """Gain under an edit that zeroes a head, against a model whose head writes nothing."""
    from interp_core import edits

    protocol = Protocol(half=HALF, sequences=50)
    cut = wired_induction()
    cut.block(1).attn.proj.weight.zero_()
    expected = copying.measure(cut, protocol).gain("shuffled")
    found = copying.gain_under(wired, protocol, None, {"z.1": edits.on_heads([0, 1], edits.zero)})
    assert found == pytest.approx(expected, abs=1e-5)


def test_one_layer_has_no_circuit() -> None:
    config = ModelConfig(d_vocab=11, context=12, d_model=16, heads=2, layers=1, d_head=8, d_mlp=0)
    found = induction.measure_heads(random_model(config), 6)
    assert found.candidate is None
    assert found.feeder is None
    assert found.composition.empty
    protocol = Protocol(half=6, sequences=20)
    model = random_model(config)
    table = induction.intervene(model, found, copying.measure(model, protocol), protocol).table
    assert "match_left" not in table


@pytest.mark.parametrize(("d_vocab", "context"), [(2, 4), (2, 12), (3, 5)])
def test_small_vocabularies_and_short_contexts_have_heads_too(d_vocab: int, context: int) -> None:
    config = ModelConfig(d_vocab=d_vocab, context=context, d_model=8, heads=2, layers=2, d_head=4, d_mlp=0)
    model, protocol = random_model(config), Protocol(copying.longest_half(context), 2, 20)
    found = induction.measure_heads(model, protocol.half)
    assert np.isfinite(found.table.drop(columns="head").to_numpy(dtype=float)).all()
    table = induction.intervene(model, found, copying.measure(model, protocol), protocol).table
    assert np.isfinite(table[["gain_nats", "change_nats_low", "match_left"]].to_numpy()).all()


def test_equal_arguments_give_equal_results() -> None:
    one, two = (induction.measure_heads(random_model(), 6, seed=3) for _ in range(2))
    assert one.table.equals(two.table)
    assert one.peak == two.peak
    assert not one.table.equals(induction.measure_heads(random_model(), 6, seed=4).table)


def test_emergence_has_a_row_a_snapshot() -> None:
    models = [(0, GPT(CONFIG, 0)), (100, wired_induction())]
    table = induction.emergence(models, Protocol(half=HALF, sequences=50))
    assert table["step"].tolist() == [0, 100]
    assert abs(table["copying_gain_nats"][0]) < 0.1 < 3 < table["copying_gain_nats"][1]
    assert table["best_previous"][1] == pytest.approx(1, abs=1e-3)
    assert table["best_match"][1] > 0.4 > table["best_match"][0]


def test_untrained_heads_match_nothing() -> None:
    found = induction.measure_heads(random_model(SMALL), 6)
    assert found.candidate is not None
    assert found.match(found.candidate).high < induction.PRESENT
