"""What the training of every cell has in common."""

from collections.abc import Callable
from typing import Any

from cavia.envs.base import TaskEnv
from cavia.errors import Diverged
from cavia.experiments.base import Place, Result
from cavia.learners.base import Learner
from cavia.tasks.batch import TaskFamily
from cavia.training.checkpoint import RunFolder
from cavia.training.fit import fit
from cavia.training.run import FitResult


def fit_cell(
    learner: Learner,
    family: TaskFamily | TaskEnv,
    place: Place,
    iterations: int,
    measure: Callable[[], Result],
    fit: Callable[..., FitResult] = fit,
    **settings: Any,
) -> Result:
    """Train in the cell's folder, keep the model that validated best as model.cavia, and measure it.

    measure: what to find out about the trained learner. A run that diverges is a result too.
    fit:     `fit` for points, `fit_policy` for environments.
    The result also has the commits that trained it, and the learning curve: [iteration, validation score, seconds so
    far] at each interval.
    """
    try:
        ended = fit(
            learner, family, iterations, run_dir=place.folder, tensorboard=False, progress=place.show, **settings
        )
        learner.save(place.folder / "model.cavia")
        measured = measure()
    except Diverged as error:
        return {"diverged": str(error)}
    folder = RunFolder(place.folder)
    metrics = folder.read_metrics()
    return {
        "commits": folder.commits(),
        "validation": ended.best_score,
        "best_iteration": ended.best_iteration,
        "seconds": ended.seconds,
        "iterations": ended.iterations,
        "curve": [[line["iteration"], line["validation"], line["seconds"]] for line in metrics if "validation" in line],
        **measured,
    }
