"""What the training of every supervised cell has in common."""

from collections.abc import Callable
from typing import Any

from cavia.errors import Diverged
from cavia.experiments.base import Place, Result
from cavia.learners.base import Learner
from cavia.tasks.batch import TaskFamily
from cavia.training.checkpoint import RunFolder
from cavia.training.fit import fit


def fit_cell(
    learner: Learner, family: TaskFamily, place: Place, iterations: int, measure: Callable[[], Result], **settings: Any
) -> Result:
    """Train in the cell's folder, keep the model that validated best as model.cavia, and measure it.

    measure: what to find out about the trained learner. A run that diverges is a result too.
    The result also has the learning curve: [iteration, validation score, seconds so far] at each interval.
    """
    try:
        ended = fit(
            learner, family, iterations, run_dir=place.folder, tensorboard=False, progress=place.show, **settings
        )
    except Diverged as error:
        return {"diverged": str(error)}
    learner.save(place.folder / "model.cavia")
    return {
        "validation": ended.best_score,
        "best_iteration": ended.best_iteration,
        "seconds": ended.seconds,
        "iterations": ended.iterations,
        "curve": [
            [line["iteration"], line["validation"], line["seconds"]] for line in RunFolder(place.folder).read_metrics()
        ],
        **measure(),
    }
