"""What is concluded: for the shipped checkpoints, for wired circuits, and where the evidence is not enough."""

import json
from dataclasses import replace

import pytest

from interp_core import checkpoints, copying, copying_verdict, induction, lessons, training
from interp_core.copying import Protocol
from interp_core.copying_verdict import Verdict
from interp_core.model import GPT, ModelConfig
from interp_core.plans import Recipe
from interp_core.statistics import Interval
from interp_core.training import Run
from tests.conftest import ROOT, random_model
from tests.wired import MATCHING_HEAD, PREVIOUS_HEAD, wired_induction

BELIEVED = Interval(3.4, 3.3, 3.5)  # the copying gain of a positive control


def judged(
    model: GPT, protocol: Protocol, control: Interval = BELIEVED, margin: float = copying_verdict.MARGIN
) -> Verdict:
    behaviour = copying.measure(model, protocol)
    circuit = induction.measure_heads(model, protocol.half, seed=protocol.seed)
    interventions = induction.intervene(model, circuit, behaviour, protocol)
    return copying_verdict.judge(behaviour, circuit, interventions, control, margin)


def shipped(name: str) -> GPT:
    return checkpoints.load(ROOT / "checkpoints" / f"{name}.pt").model


@pytest.fixture(scope="module")
def control() -> Interval:
    return copying.measure(shipped("induction"), Protocol()).copying_gain


@pytest.mark.parametrize("seed", [0, 1])
def test_verdict_on_induction(control: Interval, seed: int) -> None:
    found = judged(shipped("induction"), Protocol(seed=seed), control)
    assert found.headline == "induction circuit present"
    assert found.components[0].startswith("previous-token head: present, L0H")
    assert found.components[1].startswith("matching head: present, L1H")
    assert sum("beyond a control head" in reason for reason in found.reasons) == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_verdict_on_periodic(control: Interval, seed: int) -> None:
    found = judged(shipped("periodic"), Protocol(seed=seed), control)
    assert found.headline == "copying, but not by the textbook circuit"
    assert found.components[0].startswith("previous-token head: absent")
    assert found.components[1].startswith("matching head: absent")
    assert any("A shifted match: L1H" in reason for reason in found.reasons)


@pytest.mark.parametrize("seed", [0, 1])
def test_verdict_on_alphabet(control: Interval, seed: int) -> None:
    found = judged(shipped("alphabet"), Protocol(seed=seed), control)
    assert found.headline == "no copying, shown"
    assert any("it knows which tokens are around" in reason for reason in found.reasons)
    assert any("would have called this copying" in reason for reason in found.reasons)


@pytest.mark.parametrize("seed", [0, 1])
def test_verdict_on_shakespeare(control: Interval, seed: int) -> None:
    found = judged(shipped("shakespeare"), Protocol(seed=seed), control)
    assert found.headline == "no copying, shown"
    assert found.components[0].startswith("previous-token head: present, L0H2")
    assert found.components[1].startswith("matching head: absent")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_verdict_on_induction_in_five_of_five_seeds(seed: int) -> None:
    """The shipped recipe, for fewer steps: every seed grows the circuit."""
    recipe = replace(
        Recipe(**json.loads((ROOT / "checkpoints/induction.json").read_text())["recipe"]), steps=300, seed=seed
    )
    config = checkpoints.load(ROOT / "checkpoints" / "induction.pt").model.config
    run = Run(GPT(config, seed), recipe)
    *_, last = training.train(run, lessons.of_sequences("successors", config.d_vocab, config.context))
    assert last.step == 300
    found = judged(run.model, Protocol(sequences=100))
    assert found.kind == "present", found


def test_verdict_on_a_wired_circuit_names_its_heads() -> None:
    found = judged(wired_induction(), Protocol(half=10, sequences=100))
    assert found.kind == "present"
    assert PREVIOUS_HEAD in found.components[0]
    assert MATCHING_HEAD in found.components[1]


def test_verdict_on_a_duplicate_token_head_is_not_the_textbook() -> None:
    """Layer 1 finds the token itself and reads from it what came next: copying by another road, wired by hand."""
    model = wired_induction()
    behaviour = copying.measure(model, Protocol(half=10, sequences=100))
    other = wired_induction()
    other.block(0).attn.proj.weight.zero_()
    circuit = induction.measure_heads(other, 10)
    interventions = induction.intervene(other, circuit, behaviour, Protocol(half=10, sequences=100))
    found = copying_verdict.judge(behaviour, circuit, interventions, BELIEVED)
    assert found.kind == "other"
    assert "absent" in found.components[1]


def test_verdict_without_a_working_control_is_undecided() -> None:
    found = judged(random_model(), Protocol(half=6, sequences=100), Interval(0.02, -0.1, 0.14), margin=1.0)
    assert found.kind == "undecided"
    assert any("could not have shown it" in reason for reason in found.reasons)


def test_verdict_without_any_control_is_undecided() -> None:
    model, protocol = random_model(), Protocol(half=6, sequences=100)
    circuit = induction.measure_heads(model, 6)
    found = copying_verdict.judge(copying.measure(model, protocol), circuit, None, None, margin=1.0)
    assert found.kind == "undecided"
    assert "induction.pt" in found.next_step


def test_verdict_on_copying_asks_for_interventions() -> None:
    model, protocol = wired_induction(), Protocol(half=10, sequences=50)
    with pytest.raises(ValueError, match="this model copies: give what `intervene` measures"):
        copying_verdict.judge(copying.measure(model, protocol), induction.measure_heads(model, 10), None, BELIEVED)


def test_verdict_between_the_margins_is_undecided() -> None:
    """A wired copier too quiet to clear the margin, on few sequences."""
    model = wired_induction(loud=0.3)
    gain = copying.measure(model, Protocol(half=10, sequences=8)).copying_gain
    found = judged(model, Protocol(half=10, sequences=8), margin=gain.estimate)
    assert found.kind == "undecided"
    assert "More sequences" in found.next_step


def test_verdict_follows_the_margin() -> None:
    model, protocol = wired_induction(loud=0.3), Protocol(half=10, sequences=200)
    gain = copying.measure(model, protocol).copying_gain
    assert judged(model, protocol, margin=gain.low / 2).kind == "present"
    assert judged(model, protocol, margin=gain.high * 2).kind == "absent"


def test_verdict_when_heads_look_right_but_nothing_depends_on_them() -> None:
    """Present as patterns, without effect when taken away: not called a circuit."""
    model, protocol = wired_induction(), Protocol(half=10, sequences=100)
    behaviour, circuit = copying.measure(model, protocol), induction.measure_heads(model, 10)
    interventions = induction.intervene(model, circuit, behaviour, protocol)
    table = interventions.table.assign(change_nats=0.0, change_nats_low=-0.1, change_nats_high=0.1)
    idle = replace(interventions, table=table, changes=0 * interventions.changes)
    found = copying_verdict.judge(behaviour, circuit, idle, BELIEVED)
    assert found.kind == "undecided"
    assert "back each other up" in found.next_step


def test_verdict_on_one_layer_is_never_the_circuit() -> None:
    config = ModelConfig(d_vocab=13, context=20, d_model=26, heads=1, layers=1, d_head=13, d_mlp=0, norm="none")
    model = random_model(config)
    behaviour = copying.measure(wired_induction(), Protocol(half=10, sequences=100))
    circuit = induction.measure_heads(model, 10)
    interventions = induction.intervene(model, circuit, behaviour, Protocol(half=10, sequences=100))
    found = copying_verdict.judge(behaviour, circuit, interventions, BELIEVED)
    assert found.kind == "other"
    assert "One layer cannot hold a circuit of two." in found.reasons


@pytest.mark.slow
def test_verdict_on_untrained_models_is_never_copying() -> None:
    config = ModelConfig(d_vocab=13, context=24, d_model=16, heads=2, layers=2, d_head=8, d_mlp=32)
    kinds = [judged(GPT(config, seed), Protocol(half=12, sequences=60, seed=seed)).kind for seed in range(20)]
    assert set(kinds) == {"absent"}


def test_verdict_needs_a_control_head_before_it_says_present() -> None:
    """Where every head looks like one of the circuit, nothing is left to compare with."""
    model, protocol = wired_induction(), Protocol(half=10, sequences=100)
    behaviour, circuit = copying.measure(model, protocol), induction.measure_heads(model, 10)
    interventions = induction.intervene(model, circuit, behaviour, protocol)
    alone = interventions.table.assign(control_for=[()] * len(interventions.table))
    found = copying_verdict.judge(behaviour, circuit, replace(interventions, table=alone), BELIEVED)
    assert found.kind == "undecided"
    assert any("no control head is left" in reason for reason in found.reasons)


def test_verdict_on_a_head_at_the_threshold_is_undecided() -> None:
    """Neither found nor shown to be missing: its interval holds the share from which a head counts."""
    model, protocol = wired_induction(), Protocol(half=10, sequences=100)
    behaviour, circuit = copying.measure(model, protocol), induction.measure_heads(model, 10)
    interventions = induction.intervene(model, circuit, behaviour, protocol)
    moved = circuit.profiles - circuit.profiles[1::2, 3, circuit.offsets.index(1)].mean() + induction.PRESENT
    found = copying_verdict.judge(behaviour, replace(circuit, profiles=moved), interventions, BELIEVED)
    assert found.kind == "undecided"
    assert "unclear" in found.components[1]


def test_verdict_on_periodic_names_what_costs_most_and_says_that_it_is_misled(control: Interval) -> None:
    reasons = " ".join(judged(shipped("periodic"), Protocol(), control).reasons)
    assert "costs most" in reasons
    assert "it does worse than after unrelated ones" in reasons
