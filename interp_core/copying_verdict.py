"""What can be concluded about copying and the circuit behind it, in words and with reasons.

Four conclusions are kept apart. *Not found* is not *shown to be absent*: an absence is shown when the one-sided 95% upper
bound of the copying gain lies below a margin, and the same protocol finds copying in a model that is known to copy.
"""

from dataclasses import dataclass
from typing import Literal

from interp_core.copying import Behaviour
from interp_core.induction import PRESENT, Circuit, Interventions
from interp_core.statistics import Interval

MARGIN = 0.1  # nats: a copying gain below it does not matter
BESIDE = 0.05  # share of attention from which a place around the match is worth naming

Kind = Literal["present", "other", "absent", "undecided"]
HEADLINES: dict[Kind, str] = {
    "present": "induction circuit present",
    "other": "copying, but not by the textbook circuit",
    "absent": "no copying, shown",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class Verdict:
    """A conclusion, the components it rests on, why, and what would take it further."""

    kind: Kind
    components: tuple[str, ...]
    reasons: tuple[str, ...]
    next_step: str

    @property
    def headline(self) -> str:
        """The conclusion in a few words."""
        return HEADLINES[self.kind]


def judge(
    behaviour: Behaviour,
    circuit: Circuit,
    interventions: Interventions | None,
    control: Interval | None,
    margin: float = MARGIN,
) -> Verdict:
    """Concludes from behaviour, heads and interventions.

    Args:
        behaviour: what order is worth to the model.
        circuit: what its heads do.
        interventions: what is left of copying without them; None will do where there is no copying to lose.
        control: the copying gain that the same protocol finds in a model known to copy; None where none is at hand.
        margin: the copying gain that would matter, nats.

    Raises:
        ValueError: there is copying, but no interventions are given.
    """
    gain, components = behaviour.copying_gain, (_previous_words(circuit), _matching_words(circuit))
    size = f"Copying gain {_nats(gain)}: the right order instead of a wrong one is worth that much."
    if behaviour.copying_at_most < margin:
        return _absent(behaviour, components, control, margin)
    if gain.low <= margin:
        wait = "More sequences narrow the interval; a longer repeat gives copying more room."
        return Verdict(
            "undecided", components, (size, f"Its interval does not clear the margin of {margin:g} nats."), wait
        )
    if interventions is None:
        raise ValueError("this model copies: give what `intervene` measures, so that the heads can be judged")
    if behaviour.vocabulary_gain.high < 0:
        size += " Part of it is being misled: after shuffled tokens it does worse than after unrelated ones."
    found, missing, unclear = _heads(circuit)
    if missing:
        shifted = _shifted_words(circuit)
        reasons = (size, *missing, *([shifted] if shifted else []), _costliest(interventions))
        return Verdict("other", components, reasons, "Look at the profile around the match and at the interventions.")
    causes, doubts = _causes(circuit, interventions)
    doubts = [*unclear, *doubts]
    if doubts:
        wait = "Heads may back each other up: look at pairs on the Ablation page, or use more sequences."
        return Verdict("undecided", components, (size, *found, *causes, *doubts), wait)
    return Verdict("present", components, (size, *found, *causes), "Follow the two heads to the Atlas and to Ablation.")


def _absent(behaviour: Behaviour, components: tuple[str, ...], control: Interval | None, margin: float) -> Verdict:
    gain, vocabulary, course = behaviour.copying_gain, behaviour.vocabulary_gain, behaviour.course_gain
    bound = f"With 95% confidence the copying gain is at most {behaviour.copying_at_most:.3f} nats, below {margin:g}."
    if control is None:
        lost = "But no model known to copy is at hand to show that this protocol finds copying at all."
        return Verdict("undecided", components, (bound, lost), "Put checkpoints/induction.pt back.")
    if control.low <= margin:
        lost = f"But a model known to copy gets only {_nats(control)} this way, so it could not have shown it."
        return Verdict("undecided", components, (bound, lost), "Make the repeat longer, or use more sequences.")
    reasons = [bound, f"A model known to copy gets {_nats(control)} this way."]
    if gain.high < 0:
        reasons.append(f"The order of the earlier tokens makes it worse ({_nats(gain)}).")
    if vocabulary.low > margin:
        reasons.append(
            f"What it does instead: it knows which tokens are around. After the same tokens in any order its loss is "
            f"{_nats(vocabulary)} lower than after unrelated ones."
        )
    elif max(abs(vocabulary.low), abs(vocabulary.high)) < margin:
        reasons.append(f"Which random tokens are around does not matter to it either ({_nats(vocabulary)}).")
    if course.low > margin:
        reasons.append(
            f"The course's gain, first copy minus second, is {_nats(course)} and would have called this copying."
        )
    return Verdict("absent", components, tuple(reasons), "Change the tokens, the length or the margin: does it hold?")


def _heads(circuit: Circuit) -> tuple[list[str], list[str], list[str]]:
    """What the textbook asks for and is there, what is not, and what cannot be told from these sequences."""
    found: list[str] = []
    missing: list[str] = []
    unclear: list[str] = []
    if circuit.candidate is None or circuit.feeder is None:
        return found, ["One layer cannot hold a circuit of two."], unclear
    asked = [
        (circuit.feeder, circuit.previous(circuit.feeder), f"below {circuit.candidate} ", "the token before"),
        (circuit.candidate, circuit.match(circuit.candidate), "", "what followed the same token earlier"),
    ]
    for head, score, where, place in asked:
        if score.low > PRESENT:
            found.append(f"{head} looks at {place} ({_share(score)}).")
        elif score.high < PRESENT:
            missing.append(f"No head {where}looks at {place} with {PRESENT} of its attention (best {_share(score)}).")
        else:
            unclear.append(
                f"Whether {head} looks at {place} with {PRESENT} of its attention is unclear ({_share(score)})."
            )
    return found, missing, unclear


def _costliest(interventions: Interventions) -> str:
    """The head without which copying suffers most."""
    row = interventions.table.sort_values("change_nats").iloc[0]
    return f"Of the heads taken away, {row['head']} ({row['role']}) costs most: {row['change_nats']:+.2f} nats of the gain."


def _causes(circuit: Circuit, interventions: Interventions) -> tuple[list[str], list[str]]:
    """What taking the two heads away has shown, and what it has not."""
    causes: list[str] = []
    doubts: list[str] = []
    table = interventions.table.set_index("head")
    for head in (circuit.feeder, circuit.candidate):
        assert head is not None
        change = Interval(*(float(table[f"change_nats{end}"][head]) for end in ("", "_low", "_high")))
        against = interventions.against_control(head)
        beyond = ", but no control head is left" if against is None else f", {_nats(against)} beyond a control head"
        words = f"Without {head} the copying gain changes by {_nats(change)}{beyond}."
        needed = change.high < 0 and against is not None and against.high < 0
        (causes if needed else doubts).append(words)
    return causes, doubts


def _previous_words(circuit: Circuit) -> str:
    if circuit.feeder is None:
        return "previous-token head: none can be, the model has one layer"
    return f"previous-token head: {_presence(circuit.feeder, circuit.previous(circuit.feeder))}"


def _matching_words(circuit: Circuit) -> str:
    if circuit.candidate is None:
        return "matching head: none can be, the model has one layer"
    words = f"matching head: {_presence(circuit.candidate, circuit.match(circuit.candidate))}"
    shifted = _shifted_words(circuit)
    return f"{words}; {shifted[0].lower()}{shifted[1:].rstrip('.')}" if shifted and "absent" in words else words


def _shifted_words(circuit: Circuit) -> str | None:
    """Where the head that looks most around the match looks, when that is not where an induction head would."""
    head, offset = circuit.peak
    found = circuit.around(head, offset)
    if offset == 1 or found.low <= BESIDE:
        return None
    if offset == 0:
        return f"A duplicate-token match: {head} looks at the earlier occurrence itself ({_share(found)})."
    places = f"{abs(offset - 1)} place{'s' if abs(offset - 1) > 1 else ''} {'after' if offset > 1 else 'before'}"
    return f"A shifted match: {head} looks {places} where an induction head would ({_share(found)})."


def _presence(head: str, score: Interval) -> str:
    if score.low > PRESENT:
        return f"present, {head} ({_share(score)})"
    return f"{'absent' if score.high < PRESENT else 'unclear'} (best {head}, {_share(score)})"


def _nats(value: Interval) -> str:
    return f"{round(value.estimate, 3) + 0.0:.3f} ±{value.half_width:.3f} nats"


def _share(value: Interval) -> str:
    return f"{round(value.estimate, 2) + 0.0:.2f} ±{value.half_width:.2f} of its attention"
