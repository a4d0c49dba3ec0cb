"""The form of a new run: presets that mean something, and every number of them to be changed."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import streamlit as st

from interp_core import budget, corpora, jobs, synthetic
from interp_core.corpora import TextUnavailable
from interp_core.lessons import Lesson
from interp_core.model import ModelConfig
from interp_core.plans import Plan, Recipe
from interp_core.tokenizers import CharTokenizer
from ui import cache, runs, session, uploads, wording
from ui.texts import PASTE, fetch

SHAKESPEARE = "tiny-shakespeare"
HERE = Path("run.pt")  # stands for the run's own file
NEW = session.NEW
REPEATED = 0.1  # share of the held-out part that may stand in the training part
HOT = 0.1  # learning rate above which a run will hardly learn

# What each preset is called, the stem of its runs' names, the plan, and what to watch for.
PRESETS: dict[str, tuple[str, Plan, str]] = {
    "induction circuit, half a minute": (
        "circuit",
        Plan(
            HERE,
            text="successors",
            layers=2,
            d_mlp=0,
            snapshots=16,
            recipe=Recipe(steps=800, matrix_lr=8e-3, other_lr=2e-2, weight_decay=0.01, dropout=0.0),
        ),
        "Two layers of attention learn sequences that draw a few tokens and, for each, what mostly follows it. Which tokens "
        "are around is learned first; then, between steps 70 and 170, the loss falls at once: a previous-token head and a "
        "matching head have found each other, and what followed a token earlier is copied.",
    ),
    "Shakespeare in five minutes": (
        "shakespeare",
        Plan(HERE, snapshots=12, recipe=Recipe(steps=3000, batch=32, matrix_lr=1e-2, dropout=0.05)),
        "Letters, then words, then lines of a play. Ends near 2.2 bits a character; pair counts need 3.6.",
    ),
    "Shakespeare, the course's 816,640 parameters": (
        "course",
        Plan(HERE, snapshots=14, recipe=Recipe()),
        "The recipe of the checkpoint that comes with the app: 5,000 larger steps, 2.15 bits a character. A long pause's work.",
    ),
    "attention only": (
        "attention-only",
        Plan(HERE, layers=2, d_mlp=0, snapshots=12, recipe=Recipe(steps=2000, batch=32, matrix_lr=1e-2, dropout=0.0)),
        "Shakespeare without MLPs: what can heads do alone? A fifth of the parameters, and heads that are easier to read.",
    ),
}
FIRST = next(iter(PRESETS))


def draw() -> None:
    """Presets, form, what it will cost, and the button that starts it."""
    if NEW["steps"] not in st.session_state:
        st.session_state.setdefault(session.PRESET, FIRST)
        _fill()
    st.pills("What to train", list(PRESETS), key=session.PRESET, on_change=_fill, required=True)
    _, preset, words = PRESETS[st.session_state[session.PRESET] or FIRST]
    if st.session_state.get(NEW["text"], preset.text) == preset.text:
        st.caption(words)
    left, right = st.columns([5, 3], gap="medium")
    with left:
        characters, name = _choose_text()
        values = _numbers(synthetic_text=name in synthetic.KINDS)
    with right:
        called = st.text_input("Name", key=NEW["name"], max_chars=40, help="Small letters, digits and hyphens.")
        if characters == "":
            st.info("Paste a text on the left: a few thousand characters at least.")
            return
        try:
            plan = _plan(name, values)
            with st.spinner("Reading the text…"):
                lesson = _lesson(plan, name, characters)
            config = plan.config(lesson.d_vocab)
            budget.check(config, plan.recipe)
        except (ValueError, OSError, TextUnavailable) as error:
            st.error(f"{error}")
            if name == SHAKESPEARE and isinstance(error, TextUnavailable):
                st.button("Fetch tiny Shakespeare (1.1 MB)", on_click=fetch)
            st.button("Start", type="primary", disabled=True)
            return
        _costs(plan, config)
        own = (name, characters) if characters is not None else None
        st.button("Start", type="primary", icon=":material/play_arrow:", on_click=_start, args=(plan, called, own))
        _vocabulary(lesson, characters if characters is not None else _named(name))


def _fill() -> None:
    """Writes a preset into the form."""
    stem, plan, _ = PRESETS[st.session_state[session.PRESET] or FIRST]
    for field, value in {**asdict(plan), **asdict(plan.recipe)}.items():
        if field in NEW:
            st.session_state[NEW[field]] = value
    st.session_state[NEW["mlp"]] = plan.d_mlp != 0
    st.session_state[NEW["name"]] = runs.free_name(stem)
    st.session_state.pop(NEW["file"], None)


def _choose_text() -> tuple[str | None, str]:
    """The characters of a visitor's own text, or None for a named one; and its name."""
    brought = st.session_state.get(session.TEXTS, {})
    options = [*corpora.NAMES, *synthetic.KINDS, *brought, PASTE]
    choice, file = st.columns([2, 3], vertical_alignment="bottom")
    session.default_to(NEW["text"], options, SHAKESPEARE)
    name = choice.selectbox("Text", options, key=NEW["text"])
    with file.popover("Bring a text (.txt)", icon=":material/upload:"):
        st.file_uploader("A text in UTF-8", key=NEW["file"], on_change=_take)
    if name != PASTE:
        return brought.get(name), name
    pasted = st.text_area("Your text", key=NEW["paste"], height=100, max_chars=1_000_000, persist_state="session")
    return pasted or "", "pasted"


def _take() -> None:
    """Reads the text in the uploader; a bad one changes nothing but a message."""
    file = st.session_state.get(NEW["file"])
    if file is None:
        return
    try:
        if file.size > uploads.TEXT_BYTES:
            raise ValueError(
                f"{file.name} has {file.size:,} bytes, more than the {uploads.TEXT_BYTES:,} that are read here."
            )
        characters = file.getvalue().decode("utf-8")
        if "\0" in characters or characters.startswith("%PDF"):
            raise ValueError(f"{file.name} is not a text but another kind of file: save its text as .txt in UTF-8.")
    except UnicodeDecodeError:
        st.session_state[session.TRAIN_ERROR] = f"{file.name} is not text in UTF-8: save it as that and bring it again."
    except ValueError as error:
        st.session_state[session.TRAIN_ERROR] = str(error)
    else:
        st.session_state.setdefault(session.TEXTS, {})[file.name] = characters
        st.session_state[NEW["text"]] = file.name


def _numbers(synthetic_text: bool) -> dict[str, float]:
    """The numbers of the form, without bounds of their own: what is impossible is refused with a reason, never clipped."""
    found: dict[str, float] = {}
    (*first, width), (*second, drop) = st.columns(4), st.columns(4)
    for place, field, label in (
        (first[0], "layers", "Layers"), (first[1], "heads", "Heads"), (first[2], "d_model", "Width"),
        (width, "context", "Context"), (second[0], "steps", "Steps"), (second[1], "batch", "Batch, windows"),
        (second[2], "seed", "Seed"),
    ):  # fmt: skip
        found[field] = place.number_input(label, step=1, key=NEW[field])
    found["dropout"] = drop.number_input("Dropout", step=0.05, format="%.2f", key=NEW["dropout"])
    found["mlp"] = st.toggle("With MLPs (four times as wide as the stream)", key=NEW["mlp"])
    with st.expander("Learning rates, weight decay"):
        fine = {
            "matrix_lr": "Learning rate, matrices (Muon)", "other_lr": "Learning rate, the rest (AdamW)",
            "weight_decay": "Weight decay",
        }  # fmt: skip
        for place, (field, label) in zip(st.columns(3), fine.items(), strict=True):
            found[field] = place.number_input(label, step=0.001, format="%.4g", key=NEW[field])
    if synthetic_text:
        st.caption("65 tokens; every sequence is drawn anew.")
    return found


def _plan(name: str, values: dict[str, float]) -> Plan:
    preset = PRESETS[st.session_state[session.PRESET] or FIRST][1]
    recipe: dict[str, Any] = {field: values[field] for field in asdict(preset.recipe) if field in values}
    shape: dict[str, Any] = {field: values[field] for field in ("layers", "heads", "d_model", "context")}
    known = name in corpora.NAMES or name in synthetic.KINDS
    shape |= {"text": name if known else SHAKESPEARE, "d_mlp": None if values["mlp"] else 0}
    return replace(preset, **shape, recipe=replace(preset.recipe, **recipe))


def _lesson(plan: Plan, name: str, characters: str | None) -> Lesson:
    if characters is not None:
        return cache.lesson_of_text(name, cache.text_hash(characters), plan.context, characters)
    if name == SHAKESPEARE and not corpora.is_local(name):
        raise TextUnavailable("tiny Shakespeare is not on this machine: fetch it once, or choose another text.")
    return cache.lesson_of(plan)


def _named(name: str) -> str:
    return "" if name in synthetic.KINDS else cache.characters(name)


def _costs(plan: Plan, config: ModelConfig) -> None:
    count = budget.parameters(config)
    with st.spinner("Trying a few steps…"):
        shape = f"{config} {plan.recipe.batch} {plan.recipe.dropout > 0}"
        seconds = cache.seconds_a_step(shape, config, plan.recipe) * plan.recipe.steps
    if max(plan.recipe.matrix_lr, plan.recipe.other_lr) > HOT:
        st.caption(f":material/warning: Learning rates above {HOT} hardly ever work; a run that diverges is stopped.")
    if seconds > 3600:
        st.caption(
            ":material/warning: More than an hour, and others wait in line meanwhile: fewer steps, or a smaller model?"
        )
    left, right = st.columns(2)
    left.metric("parameters", f"{count:,}")
    right.metric(
        "expected here", wording.duration(seconds),
        help="From its first steps, tried just now on this machine; longer while another run has it, and for what is measured "
        "on the way.",
    )  # fmt: skip


def _vocabulary(lesson: Lesson, characters: str) -> None:
    """The characters that the text has, and which of them are probably not meant."""
    if lesson.vocabulary is None:
        return
    tokenizer = CharTokenizer(lesson.vocabulary)
    shown = " ".join(tokenizer.label(token) for token in range(min(tokenizer.size, 120)))
    st.caption(f"{len(characters):,} characters, {tokenizer.size} distinct:")
    st.code(shown, language=None, wrap_lines=True)
    share = cache.repeated_share(cache.text_hash(characters), characters)
    if share > REPEATED:
        st.warning(
            f"{share:.0%} of held-out stretches of 32 characters stand word for word in the training part: the validation loss "
            "will measure memory, not prediction."
        )
    odd = cache.odd_characters(cache.text_hash(characters), characters)
    if len(odd):
        with st.expander(f"{len(odd)} of them look odd", icon=":material/warning:"):
            st.dataframe(odd, hide_index=True)


def _start(plan: Plan, name: str, text: tuple[str, str] | None) -> None:
    try:
        if name != runs.free_name(name):
            raise jobs.JobError(f"A run or a checkpoint named {name} is here already: give another name.")
        runs.start(plan, name, text)
    except jobs.JobError as error:
        st.session_state[session.TRAIN_ERROR] = str(error)
        return
    st.session_state[session.RUN] = name
    st.session_state[session.TRAIN_VIEW] = None
    st.session_state[NEW["name"]] = runs.free_name(PRESETS[st.session_state[session.PRESET] or FIRST][0])
