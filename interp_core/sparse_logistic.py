"""Many L1-regularised logistic regressions on the same rows at once, each on its own share of them.

Each problem minimises |w|₁ + C Σ loss over its rows, columns scaled to unit variance on those rows, the intercept free, as
scikit-learn's LogisticRegression(l1_ratio=1, solver="saga") does after a StandardScaler. The problems share every matrix
product, so a hundred subsamples cost little more than one: the fast iterative shrinkage-thresholding algorithm (Beck &
Teboulle 2009, "FISTA"), restarted when it overshoots (O'Donoghue & Candès 2015).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

STEPS = 2000  # at most
TOLERANCE = 3e-4  # of the largest change of a weight between two checks
ROUGH = 3e-3  # the same, where only what a probe says matters and not which columns it keeps
CHECKED = 25  # steps between two checks
CONSTANT = 1e-3  # of a column's whole spread: with less on a problem's rows it is not used there
LEAVING = 0.25  # share of settled problems from which the others go on without them
POWER = 12  # iterations for the largest curvature
SAFETY = 1.1  # times the curvature that they found


@dataclass(frozen=True, eq=False)
class Fits:
    """Solutions of all problems, on scaled columns."""

    weights: Float[Tensor, "problem dim"]  # exactly zero where a column is not selected
    intercepts: Float[Tensor, "problem"]
    means: Float[Tensor, "problem dim"]
    scales: Float[Tensor, "problem dim"]
    converged: Bool[Tensor, "problem"]

    def logits(self, rows: Float[Tensor, "row dim"]) -> Float[Tensor, "row problem"]:
        """What each problem says of rows."""
        v = self.weights / self.scales
        return rows @ v.T + (self.intercepts - (v * self.means).sum(1))


def standardised(rows: Float[ndarray, "row dim"]) -> Float[Tensor, "row dim"]:
    """Columns of zero mean and unit variance in single precision, which is enough once they are.

    Solutions do not depend on it: every problem scales columns on its own rows.
    """
    spread = rows.std(0)
    return torch.from_numpy((rows - rows.mean(0)) / np.where(spread > 0, spread, np.inf)).float()


@torch.no_grad()
def fit(
    rows: Float[Tensor, "row dim"],
    positive: Bool[Tensor, "row"] | Bool[Tensor, "problem row"],
    shares: Float[Tensor, "problem row"],
    strengths: Float[Tensor, "problem"],
    start: Fits | None = None,
    columns: Bool[Tensor, "problem dim"] | None = None,
    tolerance: float = TOLERANCE,
    progress: Callable[[float], None] | None = None,
) -> Fits:
    """Solves all problems.

    Args:
        rows: shared by all.
        positive: labels, the same for all problems or each its own.
        shares: weight of each row in each problem; 0 leaves it out.
        strengths: C of each problem: the smaller, the fewer columns are selected.
        start: solutions to begin from, for instance of a smaller C.
        columns: that each problem may use; all by default.
        tolerance: the largest change of a weight, relative to the largest weight, with which a problem counts as solved.
        progress: told the share of the steps that are done at most.

    Raises:
        ValueError: a problem without rows of both classes.
    """
    labels = positive.to(rows.dtype).expand(len(shares), -1)
    for side in (labels, 1 - labels):
        if ((shares * side).sum(1) == 0).any():
            raise ValueError("a problem has rows of one class only: take more rows, or another category")
    whole = problem = _Problem.of(rows, labels, shares, strengths, columns)
    w = torch.zeros(len(shares), rows.shape[1] + 1, dtype=rows.dtype) if start is None else problem.begin(start)
    ahead, momentum, last = w.clone(), torch.ones(len(shares), 1, dtype=rows.dtype), w.clone()
    found, converged, left = w.clone(), torch.zeros(len(shares), dtype=torch.bool), torch.arange(len(shares))
    for step in range(STEPS):
        new = problem.shrink(ahead - problem.gradient(ahead) / problem.curvature)
        overshot = ((ahead - new) * (new - w)).sum(1, keepdim=True) > 0
        momentum = torch.where(overshot, 1.0, momentum)
        grown = (1 + (1 + 4 * momentum**2).sqrt()) / 2
        ahead = torch.where(overshot, new, new + (momentum - 1) / grown * (new - w))
        w, momentum = new, grown
        if (step + 1) % CHECKED == 0:
            settled = (w - last).abs().amax(1) < tolerance * w.abs().amax(1).clamp(min=tolerance)
            found[left], converged[left], last = w, settled, w.clone()
            if progress:
                progress(max((step + 1) / STEPS, float(converged.double().mean())))
            if settled.all():
                break
            if settled.double().mean() >= LEAVING:
                on = ~settled
                left, problem = left[on], problem.only(on)
                w, ahead, momentum, last = (part[on] for part in (w, ahead, momentum, last))
    return Fits(found[:, :-1], found[:, -1], whole.means, whole.scales, converged)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What the steps share. A weight vector [dim+1] ends with the intercept."""

    rows: Tensor
    labels: Tensor
    pulls: Tensor  # C times the shares [problem row]
    means: Tensor
    scales: Tensor
    curvature: Tensor  # [problem 1]: a bound on the second derivative of the smooth part
    free: Tensor  # [problem dim]: 0 where a column may not be used

    @staticmethod
    def of(rows: Tensor, labels: Tensor, shares: Tensor, strengths: Tensor, columns: Tensor | None) -> "_Problem":
        total = shares.sum(1, keepdim=True)
        means = shares @ rows / total
        scales = (shares @ rows**2 / total - means**2).clamp(min=0).sqrt()
        scales = torch.where(scales > CONSTANT * rows.std(0), scales, torch.inf)  # constant columns stay zero
        free = torch.ones_like(means) if columns is None else columns.to(rows.dtype)
        problem = _Problem(rows, labels, strengths[:, None] * shares, means, scales, torch.ones(len(shares), 1), free)
        v = torch.ones(len(shares), rows.shape[1] + 1, dtype=rows.dtype)
        for _ in range(POWER):
            v = problem.back(problem.pulls * problem.forward(v).T) / 4
            size = v.norm(dim=1, keepdim=True)
            v = v / size.clamp(min=1e-30)
        return replace(problem, curvature=SAFETY * size)

    def only(self, on: Tensor) -> "_Problem":
        """Some of the problems."""
        parts = {field.name: getattr(self, field.name)[on] for field in fields(self) if field.name != "rows"}
        return replace(self, **parts)

    def begin(self, start: Fits) -> Tensor:
        """The same directions as another solution, on these scales."""
        weights = torch.where(self.scales.isinf(), 0.0, start.weights / start.scales * self.scales) * self.free
        return torch.cat([weights, start.intercepts[:, None]], dim=1)

    def forward(self, w: Tensor) -> Tensor:
        """Logits [row problem] of scaled columns, without scaling them."""
        v = w[:, :-1] / self.scales
        return self.rows @ v.T + (w[:, -1] - (v * self.means).sum(1))

    def back(self, pulled: Tensor) -> Tensor:
        """The transpose of `forward`: from numbers at rows [problem row] to weights."""
        total = pulled.sum(1, keepdim=True)
        return torch.cat([(pulled @ self.rows - total * self.means) / self.scales, total], dim=1)

    def gradient(self, w: Tensor) -> Tensor:
        """Of the smooth part."""
        return self.back(self.pulls * (self.forward(w).T.sigmoid() - self.labels))

    def shrink(self, w: Tensor) -> Tensor:
        """The proximal step of |w|₁; the intercept is free."""
        size = (w[:, :-1].abs() - 1 / self.curvature).clamp(min=0) * self.free
        return torch.cat([w[:, :-1].sign() * size, w[:, -1:]], dim=1)
