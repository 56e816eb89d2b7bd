"""The verdict on our number against the paper's: within, better or short."""

from typing import Literal

Verdict = Literal["within", "better", "short"]

MEANING: dict[Verdict, str] = {
    "within": "inside the paper's interval, if it gives one, widened by half a unit of the last printed digit",
    "better": "outside it, on the good side",
    "short": "outside it, on the bad side",
}


def verdict(
    ours_mean: float,
    ours_interval: float | None,
    paper_mean: float,
    paper_interval: float | None,
    higher_is_better: bool,
    digits: int,
) -> Verdict:
    """Compare our mean with the paper's, which is printed with `digits` decimals.

    The paper's interval decides, or ours if the paper gives none. It is widened by half a unit of the last printed
    digit, because the paper's mean is rounded. A mean of NaN is "short".

    >>> verdict(0.22, 0.02, 0.21, 0.02, higher_is_better=False, digits=2)
    'within'
    """
    interval = paper_interval if paper_interval is not None else ours_interval or 0.0
    rounding = 0.5 * 10.0**-digits
    # 0.195 − 0.19 is above 0.005 in binary: a billionth of a digit keeps the edge inside.
    if abs(ours_mean - paper_mean) <= interval + rounding * (1 + 1e-9):
        return "within"
    is_better = ours_mean > paper_mean if higher_is_better else ours_mean < paper_mean
    return "better" if is_better else "short"
