"""Best of n on the Tuning page: what it costs to please a reward, and how it is gamed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from interp_core import preference, rewards
from interp_core.pools import Pool
from interp_core.rewards import KINDS, RewardError, Term
from interp_core.tokenizers import NumberTokenizer
from ui import cache, effort, session, wording
from ui.bench import Bench
from ui.charts import tuning as charts
from ui.progress import when_asked, with_progress

SAMPLES, FEW_SAMPLES = ("4096", "8192", "16384"), ("256", "1024", "4096")  # of a large model
LENGTHS = ("32", "64", "128", "256")
PRESETS: dict[str, list[Term]] = {
    "share of vowels": [Term("share of vowels", 100.0)],
    "says king": [Term("pattern", 1.0, r"(?i)\bking\b")],
    "lines of ten syllables": [Term("lines of k syllables", 1.0, "", 10)],
    "never the": [Term("banned word", 1.0, "the")],
    "40 characters": [Term("length", 1.0, "", 40)],
    "vowels, but never the": [Term("share of vowels", 50.0), Term("banned word", 2.0, "the")],
}
OWN = "your own"
SHOWN = 5  # samples of each kind
PREFERRED = 200  # samples whose habits are looked for: as many of the best, as many typical ones


@dataclass(frozen=True, eq=False)
class Study:
    """A pool of samples under one reward."""

    bench: Bench
    pool: Pool
    texts: list[str]
    terms: list[Term]
    scores: np.ndarray
    n: int

    @property
    def provenance(self) -> str:
        """Where the numbers come from, in one line."""
        count, length = self.pool.tokens.shape
        return (
            f"checkpoint {self.bench.checkpoint.name} ({self.bench.checkpoint.short_hash}) · {count:,} samples of {length} "
            f"{self.bench.token_word}s at temperature 1 · seed {self.bench.seed}"
        )

    def best(self) -> pd.DataFrame:
        """Best of n for every n."""
        return preference.frontier(self.scores, self.bench.seed)

    def tilted(self) -> pd.DataFrame:
        """The frontier of all policies."""
        return preference.tilting(self.scores)

    def shuffled(self) -> tuple[float, float]:
        """The control: mean reward when as much is chosen by rewards that belong to other samples, and its standard error."""
        weights = preference.weights_of_best(preference.levels(self.scores), self.n)
        rng = np.random.default_rng(self.bench.seed)
        found = [float(weights[rng.permutation(len(weights))] @ self.scores) for _ in range(20)]
        return float(np.mean(found)), float(np.std(found))

    def price(self) -> pd.DataFrame:
        """Entropy and sameness for every n."""
        levels = preference.levels(self.scores)
        rows = []
        for n in preference.COUNTS:
            weights = preference.weights_of_best(levels, n)
            rows.append((n, *preference.diversity(self.texts, self.pool.log_probabilities, weights, self.bench.seed)))
        return pd.DataFrame(rows, columns=["n", "entropy", "distinct"])

    def order(self) -> np.ndarray:
        """Samples by reward, the best first; those of one reward in the order in which they were drawn."""
        return np.argsort(-self.scores, kind="stable")

    def typical(self) -> np.ndarray:
        """Samples as they come, without those shown as the best."""
        return np.setdiff1d(np.arange(len(self.texts)), self.order()[:PREFERRED])


def open_study(bench: Bench) -> Study | None:
    """The sidebar's choices and the pool; None, with a word, where the reward cannot be computed."""
    if isinstance(bench.checkpoint.tokenizer, NumberTokenizer):
        st.info("This checkpoint's tokens are numbers, and rewards are of texts: choose a checkpoint of a text.")
        return None
    large = effort.is_large(bench.checkpoint.model)
    options = FEW_SAMPLES if large else SAMPLES
    longest = min(bench.checkpoint.model.config.context, effort.longest_window(bench.checkpoint.model))
    lengths = [length for length in LENGTHS if int(length) <= longest] or [str(longest)]
    with st.sidebar:
        session.keep_choice(session.POOL, options)
        count = int(st.select_slider("Samples", options, options[0], key=session.POOL, bind="query-params"))
        session.keep_choice(session.LENGTH_OF, lengths)
        usual = "64" if "64" in lengths and not large else lengths[0]
        length = int(st.select_slider("Tokens of each", lengths, usual, key=session.LENGTH_OF, bind="query-params"))
    name, n = _choose(bench)
    terms = PRESETS.get(name) or _own_terms()
    seconds = 2.0 * bench.seconds(count * length / bench.windows.numel())
    pool = _pool(bench, count, length, seconds)
    texts = _texts(bench, pool, count, length)
    try:
        scores = rewards.score(terms, texts)
    except RewardError as error:
        st.error(f"{error}")
        return None
    return Study(bench, pool, texts, terms, scores, n)


def _choose(bench: Bench) -> tuple[str, int]:
    left, right = st.columns([2, 3])
    names = [*PRESETS, OWN]
    name = left.selectbox("Reward", names, key=session.REWARD, bind="query-params") or names[0]
    n = right.select_slider(
        "Best of n", [str(n) for n in preference.COUNTS], "16", key=session.BEST, bind="query-params"
    )
    return name, int(n)


def _own_terms() -> list[Term]:
    """A table of terms that the visitor fills in: nothing in it is run."""
    st.caption("A row is a term; the reward is their sum, each times its weight.")
    blank = pd.DataFrame([{"counts": "pattern", "weight": 1.0, "text": "[aeiou]", "number": 0}])
    table = st.data_editor(
        blank, num_rows="dynamic", hide_index=True, key=session.TERMS,
        column_config={
            "counts": st.column_config.SelectboxColumn(options=list(KINDS), required=True),
            "text": st.column_config.TextColumn("expression or word", max_chars=rewards.LONGEST),
            "number": st.column_config.NumberColumn("syllables or length", min_value=0, max_value=1000, step=1),
        },
    )  # fmt: skip
    rows = table.dropna(subset=["counts"]).fillna({"weight": 1.0, "text": "", "number": 0})
    records: list[dict[Any, Any]] = rows.to_dict("records")
    return [Term(row["counts"], float(row["weight"]), str(row["text"]), int(row["number"])) for row in records]


def _pool(bench: Bench, count: int, length: int, seconds: float) -> Pool:
    checkpoint, first = bench.checkpoint, cache.line_break(bench.checkpoint.tokenizer)
    when_asked(f"Drawing {count:,} samples", seconds, f"pool {checkpoint.sha256} {count} {length}")
    return with_progress(
        f"Drawing {count:,} samples",
        lambda tell: cache.pool(checkpoint.sha256, count, length, bench.seed, first, checkpoint.model, tell),
    )


def _texts(bench: Bench, pool: Pool, count: int, length: int) -> list[str]:
    checkpoint = bench.checkpoint
    key = f"texts {checkpoint.sha256} {checkpoint.tokenizer.identity} {count} {length} {bench.seed}"
    return cache.measured(key, lambda: [checkpoint.tokenizer.decode(row) for row in pool.tokens.tolist()])


def claim(study: Study) -> None:
    """What best of n buys and costs, its control, and the verdict."""
    row = next(row for row in study.best().to_dict("records") if row["n"] == study.n)
    mean, error = study.shuffled()
    gained, cost, control, kept = st.columns(4)
    gained.metric(
        f"reward of the best of {study.n}", f"{row['reward']:.2f} ±{(row['reward_high'] - row['reward_low']) / 2:.2f}",
        help=f"95% interval over resamples of the pool. One sample alone: {study.scores.mean():.2f}.",
    )  # fmt: skip
    cost.metric(
        f"costs, KL in nats (bound {row['bound']:.2f})", f"{row['kl']:.2f} ±{(row['kl_high'] - row['kl_low']) / 2:.2f}",
        help="Exactly, for the reward's levels in the pool. Ties make it less than log n − (n−1)/n.",
    )  # fmt: skip
    control.metric(
        "control: shuffled rewards", f"{mean:.2f} ±{2 * error:.2f}",
        help="As much is chosen, at the same cost, by rewards that belong to other samples.",
    )  # fmt: skip
    entropy = study.price().set_index("n")["entropy"]
    kept.metric(
        "entropy of a text, nats", f"{entropy[study.n]:.1f}", f"{entropy[study.n] - entropy[1]:+.1f}", delta_color="off"
    )
    good, words = wording.best_of_verdict(row, study.scores, mean + 2 * error, len(np.unique(study.scores)))
    st.badge(
        words, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
    )


def the_frontier(study: Study) -> alt.LayerChart:
    """Reward against KL."""
    best, tilted = study.best(), study.tilted()
    chart = charts.frontier(best, tilted, study.n, float(study.scores.mean()))
    st.altair_chart(chart, alt="Expected reward against KL divergence, best of n and exponential tilting.")
    st.caption(
        "Blue: best of n, n to the right. Green: the most reward for every cost, by weighting the same pool; dashed where fewer "
        f"than {preference.FEWEST_EFFECTIVE} samples carry it. Grey: where the bound would put each n. Dotted: one sample."
    )
    return chart


def the_price(study: Study) -> alt.HConcatChart:
    """What is lost as n grows."""
    chart = charts.price(study.price())
    st.altair_chart(chart, alt="Entropy of the chosen texts and their share of distinct trigrams, against n.")
    st.caption(
        "Left: how unforeseeable the chosen text is. Right: how seldom chosen texts repeat each other. No interval."
    )
    return chart


def the_exploit(study: Study) -> alt.Chart:
    """What the best samples have in common."""
    order, typical = study.order()[:PREFERRED], study.typical()
    found = preference.overused([study.texts[i] for i in order], [study.texts[i] for i in typical], most=12)
    control = preference.overused(
        [study.texts[i] for i in typical[::2]], [study.texts[i] for i in typical[1::2]], most=1
    )
    shown = found.assign(gram=[gram.replace(" ", "␣").replace("\n", "⏎") for gram in found["gram"]])
    chart = charts.grams(shown)
    st.altair_chart(chart, alt="Stretches of letters that the best samples have more often than typical ones.")
    st.caption(
        f"Trigrams in more of the best {len(order)} samples than of others. Between two halves of typical samples the largest "
        f"z is {control.z.max():.1f}: what is above it is a habit of the reward."
    )
    return chart


VIEWS: dict[str, Callable[[Study], alt.Chart | alt.LayerChart | alt.HConcatChart]] = {
    "reward and cost": the_frontier,
    "price": the_price,
    "exploit": the_exploit,
}


def samples_beside(study: Study) -> None:
    """The best samples beside typical ones."""
    for name, places in (("Best", study.order()[:SHOWN]), ("As they come", study.typical()[:SHOWN])):
        st.caption(f"**{name}**, with their reward")
        lines = [f"{study.scores[i]:7.2f}  {study.texts[i].replace(chr(10), '⏎')}" for i in places]
        st.code("\n".join(lines), language=None, wrap_lines=True)


def code(study: Study) -> str:
    """The Python that gives the same numbers."""
    count, length = study.pool.tokens.shape
    terms, first = ", ".join(repr(term) for term in study.terms), cache.line_break(study.bench.checkpoint.tokenizer)
    return f"""from interp_core import pools, preference, rewards
from interp_core.rewards import Term

pool = pools.draw(checkpoint.model, {count}, {length}, seed={study.bench.seed}, first={first})
texts = [checkpoint.tokenizer.decode(row) for row in pool.tokens.tolist()]
scores = rewards.score([{terms}], texts)
best = preference.frontier(scores, seed={study.bench.seed})
print(best)
print(preference.tilting(scores))"""
