"""What can be done with a run: stop, resume, delete, carry home; and what all runs take of the disk."""

from collections.abc import Callable

import streamlit as st

from interp_core import jobs, run_files, synthetic, training
from interp_core.lessons import Lesson
from ui import runs, session, wording
from ui.runs import TrainingRun


def draw_controls(run: TrainingRun) -> None:
    """Stop, resume, delete and carry home."""
    job = run.job
    st.caption(
        f"{'shipped' if job is None else job.state if not job.place else f'waiting, place {job.place}'} · {run.lesson_name} · "
        f"{run.plan.layers} × {run.plan.heads} heads, d = {run.plan.d_model}"
    )
    if run.plan.file is not None or run.plan.text not in synthetic.KINDS:
        session.keep_choice(session.UNIT, (wording.NATS, wording.BITS))
        st.segmented_control(
            "Unit",
            [wording.NATS, wording.BITS],
            default=wording.NATS,
            key=session.UNIT,
            bind="query-params",
            required=True,
        )
    if job is None:
        st.caption("It came with the app, with the records and snapshots of its training.")
        return
    if job.state == "failed" and job.code != training.GAVE_UP:
        st.error(f"{job.message}")
    elif job.state == "interrupted":
        st.warning("Its process was killed. Nothing that it had saved is lost: resume it.")
    with st.container(horizontal=True, gap="small"):
        if job.active:
            st.button("Stop", icon=":material/stop:", on_click=_act, args=(jobs.stop, job), type="primary")
        elif job.state in jobs.RESUMABLE and job.code != training.GAVE_UP:
            st.button("Resume", icon=":material/play_arrow:", on_click=_act, args=(jobs.resume, job), type="primary")
        if not job.active:
            with st.popover("Delete", icon=":material/delete:"):
                st.markdown(f"Checkpoint, snapshots and curves of **{run.name}** are gone then, for everybody.")
                st.button("Delete it", on_click=_act, args=(jobs.delete, job))


def draw_disk(waiting: int) -> None:
    """What runs take of the disk, and what else lies there."""
    others = runs.baselines()
    st.caption(
        f"Runs take {wording.size(jobs.disk_use(session.RUNS))} of disk" + (f" · {waiting} waiting" if waiting else "")
    )
    if others:
        with st.expander(f"MLPs for the table ({len(others)})"):
            for job in others:
                st.caption(f"{job.name}: {job.state}")
                action, words = (jobs.stop, "Stop") if job.active else (jobs.delete, "Delete")
                st.button(f"{words} {job.name}", on_click=_act, args=(action, job))


@st.fragment(run_every=2.0)
def notice_the_end(run: TrainingRun) -> None:
    """Draws the page anew when a run ends, or keeps another snapshot, while a view is open that does not look by itself."""
    now, key = runs.refreshed(run), len(run_files.snapshots(run.out))
    seen = st.session_state.setdefault(session.SEEN_SNAPSHOTS, key)
    if now is None or not now.active or seen != key:
        st.session_state[session.SEEN_SNAPSHOTS] = key
        st.rerun()


def _act(action: Callable[[jobs.Job], None], job: jobs.Job) -> None:
    try:
        action(job)
    except jobs.JobError as error:
        st.session_state[session.TRAIN_ERROR] = str(error)


def code(run: TrainingRun, lesson: Lesson) -> str:
    """The Python that trains the same run."""
    plan, recipe = run.plan, run.plan.recipe
    if plan.file is not None:
        what = f'lessons.of_text("{plan.file.name}", corpora.read_file(Path("{plan.file.name}")), {plan.context})'
    elif lesson.vocabulary is None:
        what = f'lessons.of_sequences("{plan.text}", {plan.d_vocab}, {plan.context})'
    else:
        what = f'lessons.of_text("{plan.text}", corpora.read("{plan.text}"), {plan.context})'
    shape = f"lesson.d_vocab, {plan.context}, {plan.d_model}, {plan.heads}, {plan.layers}, d_mlp={plan.d_mlp}"
    return f"""from pathlib import Path

from interp_core import corpora, lessons, plans, training
from interp_core.model import GPT

lesson = {what}
recipe = plans.{recipe}
run = training.Run(GPT(plans.shape({shape}), seed={recipe.seed}), recipe)
for record in training.train(run, lesson, every={plan.record_every}):
    print(record.step, record.training_loss, record.validation_loss)

# or, in a shell, with checkpoint, card and snapshots:
# {plan.command}"""
