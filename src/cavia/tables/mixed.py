"""A linear mixed model for the tasks of a table, y = Zβ + Zb + e, by expectation maximisation.

Our own in closed form, because it is a dozen lines, needs no further package, is quicker than statsmodels' optimiser
with many slopes, and cannot fail to converge: every step raises the likelihood, and Ψ stays positive definite.
"""

from typing import NamedTuple

import numpy as np

MOST_SLOPES = 40  # inputs with a slope of their own in each task
ROUNDS = 60


class Mixed(NamedTuple):
    """A fitted model: what is common to all tasks, how much they differ, and how much rows do."""

    beta: np.ndarray  # [1 + inputs], the intercept first
    spread: np.ndarray  # Ψ [1 + S, 1 + S], covariance of a task's intercept and slopes
    noise: float  # variance of e
    slopes: np.ndarray  # which inputs have slopes [S]

    def predict(self, x: np.ndarray, known_x: np.ndarray, known_y: np.ndarray) -> np.ndarray:
        """Rows x [n, inputs] of a task whose rows known_x [k, inputs] have the targets known_y [k]: [n]."""
        left = known_y - _with_one(known_x) @ self.beta
        Z = _with_one(known_x[:, self.slopes])
        gain = self.spread @ Z.T  # Ψ Zᵀ (Z Ψ Zᵀ + σ²)⁻¹: no inverse of Ψ is needed
        effect = gain @ np.linalg.solve(Z @ gain + self.noise * np.eye(len(Z)), left)
        return _with_one(x) @ self.beta + _with_one(x[:, self.slopes]) @ effect


def fit_mixed(x: np.ndarray, y: np.ndarray, starts: np.ndarray, most_slopes: int = MOST_SLOPES) -> Mixed:
    """Rows x [rows, inputs], y [rows], task after task, each beginning at one of `starts` [T].

    most_slopes: how many inputs have a slope of each task, those that vary most within tasks; 0: an intercept alone.
    """
    slopes = _slopes(x, starts, most_slopes)
    X, Z = _with_one(x), _with_one(x[:, slopes])
    ends = np.append(starts[1:], len(x))
    parts = [slice(a, b) for a, b in zip(starts, ends, strict=True)]
    ZZ = np.stack([Z[part].T @ Z[part] for part in parts])  # [T, q, q]
    XZ = np.stack([X[part].T @ Z[part] for part in parts])
    Zy = np.stack([Z[part].T @ y[part] for part in parts])
    XX, Xy, width = X.T @ X, X.T @ y, Z.shape[1]
    gram = XX + 1e-6 * len(x) * np.eye(len(XX))  # one-hot columns add up to the constant
    beta = np.linalg.solve(gram, Xy)
    left = float(np.mean((y - X @ beta) ** 2)) + 1e-12
    spread, noise = np.eye(width) * left / (2 * max(1, width)), left / 2
    for _ in range(ROUNDS):
        root = square_root(spread, 1e-10)
        inner = np.eye(width) + root.T @ ZZ @ root / noise
        covariance = root @ np.linalg.solve(inner, np.broadcast_to(root.T, ZZ.shape))  # of each task's effects
        # β by generalised least squares: with Vᵢ⁻¹ = (I − Z C Zᵀ / σ²) / σ².
        share = np.einsum("tij,tjk->tik", XZ, covariance) / noise  # [T, p, q]
        whole = XX - np.einsum("tik,tjk->ij", share, XZ)
        beta = np.linalg.solve(whole + 1e-6 * len(x) * np.eye(len(whole)), Xy - np.einsum("tik,tk->i", share, Zy))
        effects = np.einsum("tij,tj->ti", covariance, Zy - np.einsum("tji,j->ti", XZ, beta)) / noise
        moments = covariance + np.einsum("ti,tj->tij", effects, effects)
        fitted = X @ beta
        error = float(np.sum((y - fitted) ** 2))
        error += -2 * float(np.einsum("ti,ti->", effects, Zy - np.einsum("tji,j->ti", XZ, beta)))
        error += float(np.einsum("tij,tji->", ZZ, moments))
        spread, noise = moments.mean(0), max(error / len(x), 1e-6 * left)
    return Mixed(beta, spread, noise, slopes)


def square_root(matrix: np.ndarray, least: float = 1e-12) -> np.ndarray:
    """R with R Rᵀ = matrix [q, q], also where rounding has made it a little less than positive semidefinite.

    least: the smallest eigenvalue, of the largest; R can then be inverted.
    """
    sizes, directions = np.linalg.eigh((matrix + matrix.T) / 2)
    return directions * np.sqrt(np.maximum(sizes, max(least * sizes[-1], 1e-300)))


def _slopes(x: np.ndarray, starts: np.ndarray, most: int) -> np.ndarray:
    """The inputs that vary within tasks, of more than `most` those that vary most."""
    counts = np.diff(np.append(starts, len(x)))
    means = np.add.reduceat(x, starts, axis=0) / counts[:, None]
    within = np.mean((x - np.repeat(means, counts, axis=0)) ** 2, axis=0)
    order = np.argsort(-within, kind="stable")[:most]
    return np.sort(order[within[order] > 1e-12])


def _with_one(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(x), 1)), x], 1)
