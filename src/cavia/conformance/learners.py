"""`check_learner`."""

import tempfile
import threading
from pathlib import Path

import torch
from torch import Tensor

from cavia.conformance.promise import CLOSE, keeps, left_as_it_was, require_close
from cavia.errors import CaviaError
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.saving import load
from cavia.models.conditioned import Conditioned
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import each, lead

THREADS, CALLS = 4, 5


@checked
def check_learner(learner: Learner, batch: TaskBatch) -> None:
    """Check a learner; raise a `CaviaError` that names the promise of `Learner` that it breaks.

    batch: at least two different tasks to try it on, without padding. It is tried in evaluation mode and is
           left as it was.

    >>> batch = Sine().sample(3, 5, 5, torch.Generator().manual_seed(0))
    >>> check_learner(CAVIA(MLP(inputs=1, outputs=1, context=5), loss="mse"), batch)
    """
    keeps(learner, "the batch to try it on has two tasks at least", len(batch) >= 2, f"it has {len(batch)}")
    with left_as_it_was(learner):
        adapted = learner.adapt(batch.support_x, batch.support_y)
        _check_adapted(learner, batch, adapted)
        _check_tasks_are_apart(learner, batch, adapted)
        _check_steps(learner, batch, adapted)
        _check_padding(learner, batch, adapted)
        _check_threads(learner, batch, adapted)
        _check_saving(learner, batch, adapted)
        learner.train()
        _check_training(learner, batch)


def _check_adapted(learner: Learner, batch: TaskBatch, adapted: Adapted) -> None:
    kind = type(adapted).__name__
    keeps(learner, "`adapt` returns a cavia.Adapted", isinstance(adapted, Adapted), f"it returned a {kind}")
    keeps(learner, "of as many tasks as it was given", len(adapted) == len(batch), f"{len(adapted)} for {len(batch)}")
    no_graph = not any(value.requires_grad for value in adapted.values())
    keeps(learner, "what `adapt` returns carries no gradient", no_graph)
    prediction = learner.predict(batch.query_x, adapted)
    keeps(learner, "what `predict` returns carries no gradient", not prediction.requires_grad)
    fits = prediction.shape[:2] == lead(batch.query_x).shape[:2]
    keeps(learner, "predictions are [T, N, ...] for x [T, N, ...]", fits, f"got {list(prediction.shape)}")
    keeps(learner, "predictions are finite", bool(prediction.isfinite().all()))
    again = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    require_close(learner, "the same points give the same prediction", again, prediction)


def _check_tasks_are_apart(learner: Learner, batch: TaskBatch, adapted: Adapted) -> None:
    together = learner.predict(batch.query_x, adapted)
    for number, task in enumerate(batch.split(1)):
        alone = learner.adapt(task.support_x, task.support_y)
        promise = "a task among others adapts and predicts as it does alone"
        require_close(learner, promise, learner.predict(task.query_x, alone), together[number : number + 1])
        require_close(
            learner,
            "adapted[i] is task i",
            learner.predict(task.query_x, adapted[number]),
            together[number : number + 1],
        )


def _check_steps(learner: Learner, batch: TaskBatch, adapted: Adapted) -> None:
    start = learner.adapt(batch.support_x, batch.support_y, steps=0)
    gone_on = start
    for _ in range(learner.inner_steps):
        gone_on = learner.adapt(batch.support_x, batch.support_y, steps=1, start=gone_on)
    promise = "steps that are taken one by one, start=adapted, end where steps at once do"
    for name in adapted.names:
        require_close(learner, promise, gone_on[name], adapted[name])
    unmoved = learner.adapt(batch.support_x, batch.support_y, steps=0, start=adapted)
    for name in adapted.names:
        require_close(learner, "no steps leave what was given as it is", unmoved[name], adapted[name])


def _check_padding(learner: Learner, batch: TaskBatch, adapted: Adapted) -> None:
    x, y = batch.support_x, batch.support_y
    mask = torch.ones(len(y), 2 * y.shape[1], dtype=torch.bool, device=y.device)
    mask[:, y.shape[1] :] = False
    expected = learner.predict(batch.query_x, adapted)
    try:
        padded = learner.adapt(each(_with_junk, x), _with_junk(y), mask)
    except CaviaError:
        keeps(learner, "padding is left out, unless the network mixes points", learner.model.mixes_points)
        return
    require_close(
        learner, "points that the mask leaves out do not count", learner.predict(batch.query_x, padded), expected
    )


def _with_junk(values: Tensor) -> Tensor:
    """[T, N, ...] → [T, 2·N, ...], the new ones such that must not be looked at; labels stay labels."""
    junk = torch.full_like(values, torch.nan) if values.is_floating_point() else values
    return torch.cat([values, junk], 1)


def _check_threads(learner: Learner, batch: TaskBatch, adapted: Adapted) -> None:
    expected = learner.predict(batch.query_x, adapted)
    wrong: list[object] = []

    def serve() -> None:
        try:
            for _ in range(CALLS):
                predicted = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
                if not torch.allclose(predicted, expected, rtol=CLOSE, atol=CLOSE):
                    wrong.append("other numbers")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=serve) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeps(learner, "several threads may call it at the same time", not wrong, f"one got {wrong[0] if wrong else ''}")


def _check_saving(learner: Learner, batch: TaskBatch, adapted: Adapted) -> None:
    """Saved and loaded it is the same; the network and a user's own loss are passed again."""
    if isinstance(learner.model, Conditioned):
        return  # it takes a new copy of the module, which only its owner can make
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.cavia"
        learner.save(path)
        loss = learner.loss if callable(learner.loss) else None
        again = load(path, loss=loss, learner=type(learner))
    keeps(learner, "saved and loaded it has the same version", again.version == learner.version)
    predicted = again.predict(batch.query_x, again.adapt(batch.support_x, batch.support_y))
    require_close(learner, "saved and loaded it predicts the same", predicted, learner.predict(batch.query_x, adapted))


def _check_training(learner: Learner, batch: TaskBatch) -> None:
    losses = learner(batch)
    keeps(learner, "the outer loss has one value for each task", losses.shape == (len(batch),), f"{list(losses.shape)}")
    keeps(learner, "the outer loss is finite", bool(losses.isfinite().all()))
    trained = [value for value in learner.parameters() if value.requires_grad]
    keeps(learner, "it has parameters that the outer loop trains", bool(trained))
    slopes = torch.autograd.grad(losses.mean(), trained, materialize_grads=True)
    keeps(learner, "the outer loss has a finite gradient", all(bool(slope.isfinite().all()) for slope in slopes))
    keeps(learner, "the outer loss depends on what is trained", any(bool(slope.any()) for slope in slopes))
