"""Integration with adaptive steps, by torchode."""

import torch
from torch import Tensor

from cavia.errors import CaviaError, missing_package
from cavia.tasks.integrating import Field

MOST_STEPS = 2000  # of one trajectory


def adaptive(field: Field, state: Tensor, times: Tensor, tolerance: float) -> list[Tensor]:
    """Like `rk4`, but with Tsitouras' method and an error of about `tolerance` per step.

    Every trajectory has steps of its own, so none depends on the others. One that is not finite where it begins, or
    whose field is not, is NaN.
    """
    try:
        import torchode
    except ImportError as error:
        raise missing_package("solver='adaptive'", "torchode", "flow") from error

    leading = times.shape[:-1]
    start, ends = state.flatten(0, len(leading) - 1).flatten(1), times.flatten(0, -2)
    begin = field(state).reshape(start.shape)
    fine = (start.isfinite() & begin.isfinite()).all(1, keepdim=True) & ends.isfinite().all(1, keepdim=True)
    start, ends = start.where(fine, 0), ends.where(fine, 1)

    def flat(_: Tensor, rows: Tensor) -> Tensor:
        return field(rows.view(state.shape)).reshape(rows.shape).where(fine, 0)

    term = torchode.ODETerm(flat, with_stats=False)
    controller = torchode.IntegralController(atol=tolerance, rtol=tolerance, term=term)
    method = torchode.Tsit5(term=term)
    solver = torchode.AutoDiffAdjoint(
        method, controller, max_steps=MOST_STEPS, backprop_through_step_size_control=False
    )
    problem = torchode.InitialValueProblem(start, torch.zeros_like(ends[:, 0]), ends[:, -1], ends)
    solved = solver.solve(problem)
    if bool((solved.status != torchode.status_codes.SUCCESS).any()):
        raise CaviaError(
            f"a trajectory needs more than {MOST_STEPS} steps for tolerance={tolerance:g}, or leaves all bounds; "
            "take a larger tolerance, shorter times, or solver='rk4'"
        )
    lost = begin + torch.where(fine, 0, torch.nan).to(begin)  # NaN, and so is its gradient
    states = torch.where(fine.unsqueeze(-1), solved.ys, lost.unsqueeze(1))
    return [one.reshape(state.shape) for one in states.unbind(1)]
