"""What an estimator's file holds in addition to its model: its arguments, and what `fit` learned about X and y."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cavia.errors import CaviaError, named, shown
from cavia.store.contexts import ContextStore
from cavia.tables.cells import MISSING, as_text, canonical, is_missing
from cavia.tables.model import KnownTasks, TableModel
from cavia.tables.posterior import Posterior


def describe(estimator: Any) -> dict[str, Any]:
    """JSON values of a fitted estimator, for `arguments` and `fitted`."""
    description = {"arguments": estimator.get_params(), "columns": estimator.n_features_in_}
    description |= {
        "names": getattr(estimator, "feature_names_in_", None),
        "classes": getattr(estimator, "classes_", None),
    }
    return _plain(description | {"flat": getattr(estimator, "flat_", True)})


def arguments(cls: Any, model: TableModel, extra: Mapping[str, Any], path: Any) -> dict[str, Any]:
    """What to build the estimator with; of a file by `cavia fit`, what the model says."""
    if "estimator" not in extra:
        learner: Any = model.learner
        network = learner.model
        said = {"group": model.encoding.task, "hidden": tuple(network.hidden), "inner_steps": learner.inner_steps}
        if isinstance(learner, Posterior):
            return said | {"context": network.effects}
        return said | {"method": "gradient", "context": network.context, "inner_lr": learner.inner_lr}
    given = _mapping(extra["estimator"], path).get("arguments")
    unknown = [name for name in _mapping(given, path) if name not in cls().get_params()]
    if unknown:
        raise CaviaError(f"{path} has an argument that {cls.__name__} does not know: {shown(unknown[0])}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in _mapping(given, path).items()}


def fitted(model: TableModel, extra: Mapping[str, Any], path: Any) -> dict[str, Any]:
    """Attribute → value: what `fit` would have set in addition to model and contexts."""
    about = _mapping(extra.get("estimator", {}), path)
    attributes: dict[str, Any] = {}
    columns, names = about.get("columns"), about.get("names")
    if isinstance(columns, int) and not isinstance(columns, bool):
        attributes["n_features_in_"] = columns
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        attributes["feature_names_in_"] = np.array(names, dtype=object)
    if not model.encoding.is_classification:
        return attributes | {"flat_": len(model.encoding.targets) == 1 and about.get("flat", True) is True}
    levels = list(model.encoding.target.levels)
    classes = about.get("classes", levels)
    if not isinstance(classes, list) or sorted(level_of(one) for one in classes) != sorted(levels):
        raise CaviaError(f"{path} has other classes than its model: {shown(classes)}")
    return attributes | {"classes_": np.array(classes)}


def stored(model: TableModel, path: str | PathLike[str]) -> KnownTasks:
    """All contexts of a store that belongs to the model."""
    if not Path(path).is_file():
        raise CaviaError(f"there is no store {named(path)}; `save(…, contexts=…)` and `cavia adapt` make one")
    known = KnownTasks()
    with ContextStore(path, model.learner.version) as store:
        for ids, contexts in store.batches():
            known.update(zip(map(str, ids), contexts, strict=True))
    return known


def classes_of(values: np.ndarray) -> np.ndarray:
    """The classes of y [rows], sorted; missing values are not a class."""
    present = [value for value in values.tolist() if isinstance(value, str) or not is_missing(value)]
    try:
        classes = np.array(sorted(set(present)))
    except TypeError:
        raise CaviaError("y must hold classes of one kind: all text, or all numbers") from None
    if len(classes) < 2:
        raise CaviaError(f"y must hold at least 2 classes, got {len(classes)} class")
    texts = [level_of(one) for one in classes.tolist()]
    lost = [text for text in texts if text.lower() in MISSING]
    if lost or len(set(texts)) < len(texts):
        what = f"{lost[0]!r}, which means that a value is missing" if lost else "two that differ by blanks only"
        raise CaviaError(f"y holds the class {what}; rename it")
    return classes


def level_of(value: Any) -> str:
    """A class as the encoding calls it."""
    return canonical(as_text(value))


def _mapping(value: Any, path: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CaviaError(f"{path} does not describe an estimator: {shown(value)}")
    return value


def _plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers and arrays become Python's."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
