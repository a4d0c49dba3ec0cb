"""What the SAE page knows of one autoencoder, and its claim beside its controls."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from interp_core import features, sae_quality
from interp_core.categories import IN_WINDOW, NAMED
from interp_core.features import Cause, Fired
from interp_core.sae import SparseAutoencoder
from interp_core.sae_files import Trained
from interp_core.sae_quality import BASELINES, Quality, Site
from interp_core.statistics import Interval
from interp_core.tokenizers import NumberTokenizer
from ui import cache, wording
from ui.bench import Bench
from ui.progress import Progress, with_progress
from ui.sections import labelled

REPLICATES = 0.9  # cosine to the nearest feature of another seed
RANDOM_SEED = 12345  # of directions that have learned nothing
SEEN = 10  # times that a token occurs at least to be an explanation
BUDGETS = (1, 2, 4, 8, 16, 32, 64)  # active parts a token, of the controls


@dataclass(frozen=True, eq=False)
class Lens:
    """One autoencoder over the windows on the bench; everything is measured once and cached."""

    bench: Bench
    trained: Trained

    @property
    def sae(self) -> SparseAutoencoder:
        """The weights."""
        return self.trained.sae

    @property
    def site(self) -> str:
        """Where it reads."""
        return str(self.trained.card["site"])

    @property
    def provenance(self) -> str:
        """Where the numbers come from, in one line."""
        card, shape = self.trained.card, self.sae.shape
        return (
            f"{self.bench.provenance} · {self.site} · autoencoder {self.trained.name} ({self.trained.sha256[:8]}), {shape.kind}, "
            f"{shape.features:,} features, trained on {card.get('rows', 0):,} tokens of {card['text']}"
        )

    def fired(self) -> Fired:
        """What all features do on the windows."""
        model, windows = self.bench.checkpoint.model, self.bench.windows[:, :-1]
        return self._measured(
            "fired",
            f"Reading {windows.numel():,} tokens",
            lambda tell: features.fire(model, self.sae, windows, self.site, tell),
        )

    def quality(self) -> Quality:
        """How good it is on these windows."""
        return self._measured(
            "quality",
            "Splicing the reconstruction in",
            lambda tell: sae_quality.of_autoencoder(self._site(), self.sae, self.bench.seed),
        )

    def chance_cosine(self) -> float:
        """Median cosine of a feature to the nearest of as many random directions."""
        return float(sae_quality.replication(self.sae, SparseAutoencoder(self.sae.shape, RANDOM_SEED)).median())

    def components(self) -> Quality:
        """What as many principal components buy."""

        def work(_: Progress) -> Quality:
            site, count = self._site(), max(1, min(round(self.quality().active), self.sae.shape.d))
            made = sae_quality.principal_components(site.rows, count)
            return sae_quality.quality(site, made, float(count), self.bench.seed)

        return self._measured("components", "Spending as many parts on principal components", work)

    def baselines(self) -> pd.DataFrame:
        """What the same number of active parts buys otherwise. Columns: name, active, and both figures with ends."""

        def work(tell: Progress) -> pd.DataFrame:
            site, rows, done = self._site(), [], 0
            sample = site.rows
            budgets = [k for k in BUDGETS if k <= self.sae.shape.d]
            for name, make in BASELINES.items():
                for k in budgets:
                    rows.append(point(name, sae_quality.quality(site, make(sample, k), float(k), self.bench.seed)))
                    done += 1
                    tell(done / (len(BASELINES) * len(budgets)))
            return pd.DataFrame(rows)

        return self._measured("baselines", "Spending as many parts otherwise", work)

    def labels(self) -> dict[str, np.ndarray]:
        """What may explain a feature: named categories, and every token that is common enough [row]."""
        bench = self.bench
        tokenizer, tokens = bench.checkpoint.tokenizer, bench.windows[:, :-1].numpy().ravel()
        found = {}
        if not isinstance(tokenizer, NumberTokenizer):
            for name in (*NAMED, *IN_WINDOW):
                found[name] = labelled.marks_of(bench, name).ravel()
        for token, times in zip(*np.unique(tokens, return_counts=True), strict=True):
            if times >= SEEN:
                found[f"token {tokenizer.label(int(token))}"] = tokens == token
        return {name: marks for name, marks in found.items() if marks.any()}

    def table(self) -> pd.DataFrame:
        """A row a feature."""

        def work(_: Progress) -> pd.DataFrame:
            fired = self.fired()
            table = pd.DataFrame({"density": fired.density, "largest": fired.largest})
            table.insert(0, "feature", range(len(table)))
            table = pd.concat([table, features.explain(fired, self.labels())], axis=1)
            twin = self.trained.replication
            return table.assign(replication=np.nan if twin is None else twin.numpy().astype(float))

        return self._measured("table", "Looking for what explains each feature", work)

    def random_f1(self) -> np.ndarray:
        """F1 of the best category for random directions that fire as seldom, found in the same way."""

        def work(_: Progress) -> np.ndarray:
            rows = self._site().rows.double().numpy()
            control = features.random_features(rows, self.fired().density, self.fired().length, self.bench.seed)
            return features.explain(control, self.labels())["f1"].to_numpy()

        return self._measured("random", "Explaining random directions", work)

    def cause(self, feature: int) -> Cause:
        """What the model loses without a feature."""
        bench = self.bench
        return self._measured(
            f"cause {feature}",
            f"Taking feature {feature} away, and others like it",
            lambda tell: features.ablate(
                bench.checkpoint.model, self.sae, bench.windows, self.site, feature, self.fired(), bench.seed, tell
            ),
        )

    def _site(self) -> Site:
        model, windows = self.bench.checkpoint.model, self.bench.windows
        return self._measured(
            "site", f"Reading {windows.numel():,} tokens", lambda _: Site.of(model, windows, self.site)
        )

    def _measured(self, name, words, work):  # type: ignore[no-untyped-def]
        key = f"SAE {name} {self.trained.sha256} {self.bench.checkpoint.sha256} {self.bench.windows_hash} {self.bench.seed}"
        return with_progress(words, lambda tell: cache.measured(key, lambda: work(tell)))


def point(name: str, found: Quality) -> dict[str, object]:
    """A quality as a row of a table."""
    row: dict[str, object] = {"name": name, "active": found.active}
    for figure in ("explained", "recovered"):
        value: Interval = getattr(found, figure)
        row |= {figure: value.estimate, f"{figure}_low": value.low, f"{figure}_high": value.high}
    return row


def from_card(name: str, card: dict) -> dict[str, object]:
    """The same of a quality that a card tells."""
    figures = {figure: Interval(**card[figure]) for figure in ("explained", "recovered")}
    return point(name, Quality(float(card["active"]), **figures))


def claim(lens: Lens) -> None:
    """How good the reconstruction is, its controls, and the verdict."""
    found, card, table = lens.quality(), lens.trained.card, lens.table()
    same = lens.components()
    explained, recovered, control, alive = st.columns([4, 4, 5, 4])
    explained.metric(
        f"variance explained, L0 = {found.active:.0f}", wording.plus_minus(found.explained),
        help="1 − Σ‖x − x̂‖² / Σ‖x − mean‖² on the windows on the bench. 95% interval over windows.",
    )  # fmt: skip
    recovered.metric(
        "cross-entropy recovered", wording.plus_minus(found.recovered),
        help="Of the loss between the intact model and the site at its mean: what the reconstruction keeps.",
    )  # fmt: skip
    control.metric(
        f"control: {same.active:.0f} principal components",
        wording.plus_minus(same.recovered),
        help="Cross-entropy recovered by as many directions that are the same for every token; they explain "
        f"{wording.plus_minus(same.explained)} of the variance.",
    )  # fmt: skip
    dead = int((table["density"] == 0).sum())
    replicated = float((table["replication"] > REPLICATES).mean())
    alive.metric(
        "features that come back", "—" if lens.trained.replication is None else f"{replicated:.0%} of {len(table):,}",
        help=f"Share with a feature of another seed in nearly the same direction (cosine above {REPLICATES}). Median of the "
        f"nearest cosines: {table['replication'].median():.2f}; to as many random directions {lens.chance_cosine():.2f}. "
        f"{dead} do not fire on these windows; in training {card.get('dead', 0)} were dead at the end, "
        f"{card.get('resampled', 0)} revived or resampled.",
    )  # fmt: skip
    f1, chance = table["f1"][table["density"] > 0], lens.random_f1()
    good, words = wording.sae_verdict(found, same.recovered.estimate, f1.to_numpy(), chance)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.badge(
            words, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
        )
        if "untrained" in card:
            there = from_card("", card["untrained"])
            st.caption(
                f"The same on an untrained model: {there['explained']:.2f} explained, {there['recovered']:.2f} recovered.",
                width="stretch",
            )
