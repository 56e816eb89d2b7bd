"""`cavia fit --search 20`: settings chosen by the validation tasks, with Optuna."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cavia.errors import Diverged, missing_package, require_at_least
from cavia.tables.fitting import train_table
from cavia.tables.starting import validation_loss
from cavia.tables.tasks import Tasks

WIDTHS = ("16", "64", "128", "32,32", "64,64")
DEFAULTS: dict[str, Any] = {"method": "posterior", "hidden": "64,64", "context": 8, "lr": 1e-3, "iterations": 600}


class Searched(NamedTuple):
    """The best settings of a search."""

    settings: dict[str, Any]  # for `train_table`
    loss: float  # on the validation tasks
    trials: int  # that are finished
    default: float  # the loss of the defaults


def search_table(
    family: Tasks,
    trials: int,
    *,
    seed: int = 0,
    most_iterations: int = 1200,
    path: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Searched:
    """Try the defaults and other settings of `train_table`, and return the best on the validation tasks.

    trials: how many settings are tried in all; with a `path`, those that are finished there count, so a search that was
            stopped resumes. The file belongs to one family and seed.
    tell:   is given a line after each of them.
    """
    require_at_least("trials", trials, 1)
    try:
        import optuna
    except ImportError as error:
        raise missing_package("a search", "Optuna", "search") from error
    optuna.logging.set_verbosity(logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=min(8, max(2, trials // 2)))
    study = optuna.create_study(
        storage=_storage(optuna, path), sampler=sampler, study_name=_name(family, seed), load_if_exists=True
    )
    if not study.trials:
        study.enqueue_trial(DEFAULTS | {"iterations": min(DEFAULTS["iterations"], most_iterations)})

    def loss(trial: Any) -> float:
        settings = _suggested(trial, most_iterations)
        try:
            model, _ = train_table(family, **settings, seed=seed, progress=False)
        except Diverged:
            return float("inf")
        validated = validation_loss(model.learner, family, seed)
        tell(f"  {trial.number + 1} of {trials}: {validated:.5g} with {shown_settings(settings)}")
        return validated

    done = [trial for trial in study.trials if trial.state.is_finished() and trial.value is not None]
    if len(done) < trials:
        study.optimize(loss, n_trials=trials - len(done))
    done = [trial for trial in study.trials if trial.state.is_finished() and trial.value is not None]
    return Searched(_settings(study.best_params), study.best_value, len(done), float(done[0].value or 0.0))


def shown_settings(settings: Mapping[str, Any]) -> str:
    """As flags of `cavia fit`."""
    return " ".join(f"--{name.replace('_', '-')} {_flag(value)}" for name, value in settings.items())


def _flag(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _suggested(trial: Any, most_iterations: int) -> dict[str, Any]:
    """Rates are rounded to what a command line shows, so that the command trains the same."""
    suggested = {"method": trial.suggest_categorical("method", ["posterior", "gradient"])}
    suggested["hidden"] = trial.suggest_categorical("hidden", WIDTHS)
    suggested["context"] = trial.suggest_int("context", 1, 16)
    suggested["lr"] = trial.suggest_float("lr", 1e-4, 5e-3, log=True)
    suggested["iterations"] = trial.suggest_int("iterations", min(100, most_iterations), most_iterations)
    if suggested["method"] == "gradient":
        suggested["inner_lr"] = trial.suggest_float("inner_lr", 0.05, 2.0, log=True)
        suggested["inner_steps"] = trial.suggest_int("inner_steps", 1, 5)
    return _settings(suggested)


def _settings(suggested: Mapping[str, Any]) -> dict[str, Any]:
    rounded: dict[str, Any] = {
        name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in suggested.items()
    }
    return rounded | {"hidden": tuple(int(width) for width in rounded["hidden"].split(","))}


def _storage(optuna: Any, path: Path | None) -> Any:
    """A journal: each finished trial is a line on disk."""
    if path is None:
        return None
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    journal = optuna.storages.journal
    lock = journal.JournalFileOpenLock(str(path))
    return optuna.storages.JournalStorage(journal.JournalFileBackend(str(path), lock_obj=lock))


def _name(family: Tasks, seed: int) -> str:
    text = json.dumps({"family": family.settings, "support": family.support, "seed": seed}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
