"""What the Probing page measures, each once for all strengths, and its claim beside its controls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import pandas as pd
import streamlit as st

from interp_core import probe_controls, probing, stability_selection
from interp_core.classification import Figure, Judged
from interp_core.probe_controls import Null
from interp_core.probing import STRENGTHS, Causal, Probes
from interp_core.stability_selection import Stability, Subsampling
from ui import cache, wording
from ui.charts.probing import SHIFTED, SURFACE, TASK, UNTRAINED
from ui.progress import Progress, with_progress
from ui.sections.labelled import Labelled

T = TypeVar("T")
CONTROLS = (SURFACE, TASK, UNTRAINED)


@dataclass(frozen=True, eq=False)
class Study:
    """One category at one site, at one strength."""

    labelled: Labelled
    strength: int  # which of STRENGTHS
    figure: Figure

    @property
    def chance(self) -> float:
        """What the figure is where nothing can be read."""
        return self.probes().majority if self.figure == "accuracy" else 0.5

    @property
    def judged(self) -> Judged:
        """The probe at this strength."""
        return self.probes().judged[self.strength]

    def at(self, site: str) -> "Study":
        """The same question at another site."""
        return replace(self, labelled=self.labelled.at(site))

    def probes(self) -> Probes:
        """The category's own probes."""
        labelled = self.labelled

        def work(tell: Progress) -> Probes:
            rows, windows, _ = labelled.rows()
            return probing.path(rows, labelled.positive, windows, seed=labelled.bench.seed, progress=tell)

        return self._measured("path", f"Fitting probes at {labelled.site}", work)

    def control(self, name: str) -> Probes | str:
        """A control's probes, or why there are none."""
        labelled, seed = self.labelled, self.labelled.bench.seed
        if name == UNTRAINED:
            return replace(self, labelled=labelled.untrained()).probes()

        def work(tell: Progress) -> Probes | str:
            rows, windows, tokens = labelled.rows()
            positive = labelled.positive
            if name == TASK:
                positive = probe_controls.control_task(tokens, positive, seed)
            else:
                rows = probe_controls.surface(labelled.windows.numpy())[labelled.kept]
            try:
                return probing.path(rows, positive, windows, seed=seed, progress=tell)
            except ValueError as error:
                return str(error)

        return self._measured(name, f"Fitting a control: {name}", work)

    def rival(self, name: str) -> tuple[Probes, int] | str:
        """A control's probes, and at which strength it is compared: the surface at its best, the others at this one."""
        probes = self.control(name)
        if isinstance(probes, str) or name != SURFACE:
            return probes if isinstance(probes, str) else (probes, self.strength)
        return probes, int(probes.table[probing.column(self.figure)].to_numpy().argmax())

    def null(self) -> Null:
        """What shifted labels give."""

        def work(tell: Progress) -> Null:
            rows, windows, _ = self.labelled.rows()
            seed = self.labelled.bench.seed
            return probe_controls.null(rows, self.labelled.positive, windows, STRENGTHS, seed=seed, progress=tell)

        return self._measured("null", f"Fitting a control: {SHIFTED}", work)

    def others(self) -> pd.DataFrame:
        """Probes on neurons that were chosen otherwise."""

        def work(tell: Progress) -> pd.DataFrame:
            rows, windows, _ = self.labelled.rows()
            dim, seed = rows.shape[1], self.labelled.bench.seed
            sizes = [*(2**i for i in range(dim.bit_length()) if 2**i < dim), dim]
            return probing.ranked(rows, self.labelled.positive, windows, sizes, seed, tell)

        return self._measured("ranked", "Choosing neurons otherwise", work)

    def stability(self, how: Subsampling) -> Stability:
        """How often subsamples keep each neuron."""

        def work(tell: Progress) -> Stability:
            rows, windows, _ = self.labelled.rows()
            return stability_selection.stability(rows, self.labelled.positive, windows, STRENGTHS, how, tell)

        return self._measured(f"stability {how}", f"Fitting probes to {how.count} subsamples of the text", work)

    def causal(self, neurons: tuple[int, ...]) -> Causal:
        """What the model loses without neurons."""
        found, bench = self.labelled, self.labelled.bench
        masks = (found.belongs & ~found.compared, found.compared & ~found.belongs)

        def work(tell: Progress) -> Causal:
            return probing.ablate(
                bench.checkpoint.model, bench.windows, masks, found.site, neurons, bench.seed, progress=tell
            )

        return self._measured(f"causal {neurons}", f"Taking {len(neurons)} neurons away, and random ones", work)

    def _measured(self, name: str, words: str, work: Callable[[Progress], T]) -> T:
        key = f"probing {name} {self.labelled.key}"
        return with_progress(words, lambda tell: cache.measured(key, lambda: work(tell)))


def claim(study: Study) -> None:
    """The figure held out, what it exceeds, and the verdict."""
    probes, null, place, figure = study.probes(), study.null(), study.strength, study.figure
    found, kept = study.judged.figure(figure), int(probes.neurons[place])
    drawn = null.figures[figure][:, place]
    p = null.p_value(figure, place, found.estimate)
    places = st.columns([4, 4, 4, 5])
    places[0].metric(
        f"{figure}, {kept} of {probes.weights.shape[1]} neurons", wording.plus_minus(found),
        help="Held out: every token is judged by a probe that saw other fifths of the text. 95% interval over windows. Where "
        f"nothing can be read it is {study.chance:.2f}.",
    )  # fmt: skip
    above = None
    for slot, name, label in ((places[1], SURFACE, "above nearby tokens"), (places[2], TASK, "selectivity")):
        rival = study.rival(name)
        if isinstance(rival, str):
            slot.metric(label, "—", help=f"{HELP[name]} None here: {rival}")
            continue
        other = rival[0].judged[rival[1]]
        difference = study.judged.above(other, figure)
        above = difference if name == SURFACE else above
        reached = f" The control reaches {wording.plus_minus(other.figure(figure))}."
        slot.metric(label, _signed(difference), help=HELP[name] + reached)
    places[3].metric(
        f"control: shifted labels (p = {p:.3f})", f"{drawn.mean():.2f} ({drawn.min():.2f} to {drawn.max():.2f})",
        help=f"Mean, least and most of {len(drawn)} times that labels were shifted within their windows and probes fitted anew.",
    )  # fmt: skip
    few = int(probes.neurons[probing.elbow(probes.table, figure)])
    few_enough = probing.is_concentrated(probes.table, study.others(), probes.weights.shape[1], figure)
    good, words = wording.probe_verdict(
        study.labelled.names[0], found, study.chance, p, (few, probes.weights.shape[1]), few_enough
    )
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        icon = ":material/check:" if good else ":material/question_mark:"
        st.badge(words, icon=icon, color="green" if good else "orange")
        if good and above is not None:
            st.badge(wording.surface_verdict(above), color="green" if above.low > 0 else "orange")


HELP = {
    SURFACE: "The figure less that of the best probe on the last three tokens and the position, without any model; paired on the "
    "same windows.",
    TASK: "The figure less that of the same probe on a control task: one random label for each token type, in the category's "
    "share (Hewitt & Liang 2019). Near zero, the probe could have learned the category by heart.",
    UNTRAINED: "The same site of a model of the same shape that has learned nothing.",
}


def _signed(value: wording.Interval) -> str:
    return f"{'+' if value.estimate > 0 else ''}{wording.plus_minus(value)}"


def controls(study: Study) -> pd.DataFrame:
    """The figure beside all controls at this strength, and how much larger it is, paired."""
    rows = [("this probe", wording.plus_minus(study.judged.figure(study.figure)), "", "")]
    for name in CONTROLS:
        rival = study.rival(name)
        if isinstance(rival, str):
            rows.append((name, "none", "", rival))
            continue
        probes, at = rival
        reached, above = probes.judged[at].figure(study.figure), study.judged.above(probes.judged[at], study.figure)
        kept = f"{int(probes.neurons[at])} of {probes.weights.shape[1]}"
        rows.append((name, wording.plus_minus(reached), _signed(above), kept))
    if study.figure == "accuracy":
        rows.append(("majority", f"{study.probes().majority:.3f}", "", ""))
    return pd.DataFrame(rows, columns=["probe", study.figure, "difference", "inputs"])
