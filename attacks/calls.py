"""Every public callable of `cavia`, its constructor and its methods, with each argument wrong in turn."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import inf
from typing import Any

import numpy as np
import torch
from beartype.door import is_bearable

import cavia
from attacks.outcomes import Case, all_finite
from attacks.values import BY_NAME, inputs_of_rows, learner, parameters_of, right_value, targets_of, wrong_values
from cavia.errors import MOST_STEPS

# Called by the library with what it has checked, or filled in by subclasses; not by users.
HOOKS = {
    "Adapted": {"flatten", "unflatten", "of", "map"},
    "Learner": {"infer", "predictor", "statistics_in", "step_size", "check_context", "check_mask", "check_targets"}
    | {"check_query", "check_features", "query_losses", "compared", "rule", "network"}
    | {"policy_terms"},
    "ContextModel": {"forward", "head", "stem", "statistics", "observe", "basis", "slopes", "context_gradient"}
    | {"checked", "linearised"},
    "Policy": {"entropy", "fisher", "kl", "log_prob", "mode", "sample"},
    "Concat": {"forward", "add_context", "from_features"},
    "FiLM": {"forward"},
    "Outer": {"step", "check", "takes", "has_kernel", "lr_at"},
    "TaskEnv": {"state", "load_state", "keep"},
    "OuterStep": {"take", "state", "load_state", "now", "spread"},
    "TaskFamily": {"reopen", "pictures_of_each_class"},
    "Dynamics": {"derivative", "simulate", "conserved"},
    "Validation": {"filled"},
    "RunFolder": {"claim", "append_metrics", "forget_metrics_after", "save", "lock"}
    | {"keep_before_cooldown", "go_back_before_cooldown"},
    "Module": {"state_dict", "train"},
    "GaussNewton": {"export"},  # ONNX cannot solve linear equations, and its message says so whatever the arguments
    "SampledContext": {"export"},  # around a policy it needs an example, and its message says so whatever the arguments
    "ContextEstimator": {"load"},  # its file is that of a table's model, which `files` damages
}
STORING = {"ContextRegressor", "ContextClassifier"}  # by scikit-learn's conventions: arguments are checked by fit
NOT_CALLED = {"TaskFamily", "Dynamics", "Learner", "ContextModel", "Outer", "OuterStep", "TaskEnv"}  # abstract
SMALL = {"y", "size", "queries", "tasks", "train", "val", "test", "drawings"}  # given even where there is a default
# Arguments that say how long a call takes, with the most that it takes; what is beyond must be refused.
LONG = {"iterations": inf, "minutes": inf, "timeout": inf, "horizon": inf}
LONG |= dict.fromkeys(("steps", "inner_steps", "epochs", "cg_iterations", "cg_steps", "backtracks"), MOST_STEPS)


def public_calls() -> Iterator[tuple[str, Callable[[], Callable[..., Any]]]]:
    """(name, how to get at it) of every public function, constructor and method, asked of the package itself."""
    names = [(name, getattr(cavia, name)) for name in vars(cavia)["__all__"]]
    names += [(f"envs.{name}", getattr(cavia.envs, name)) for name in vars(cavia.envs)["__all__"]]
    for name, value in names:
        if not callable(value) or (isinstance(value, type) and issubclass(value, BaseException)):
            continue
        kinds = {kind.__name__ for kind in value.__mro__} if isinstance(value, type) else set()
        if name.rpartition(".")[2] in NOT_CALLED:
            continue
        if name not in STORING:
            yield name, partial(_itself, value)
        if not isinstance(value, type):
            continue
        hooks = set().union(*(hidden for kind, hidden in HOOKS.items() if kind in kinds))
        for method, function in inspect.getmembers(value, callable):
            ours = (getattr(function, "__module__", None) or "").startswith("cavia")
            if ours and not method.startswith("_") and method not in hooks:
                yield f"{name}.{method}", partial(_method, name, value, method)


def _itself(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


def _method(name: str, kind: type, method: str) -> Callable[..., Any]:
    return getattr(made(name, kind), method)


def made(name: str, kind: type) -> Any:
    """An object of a public class, by right arguments, in a state in which its methods can be called."""
    result = kind(**right_arguments(name, kind))
    if isinstance(result, cavia.ContextStore):
        result.put(["a", "b"], torch.ones(2, 2))
    if isinstance(result, cavia.envs.TaskEnv):
        result.reset(result.sample_tasks(2, torch.Generator().manual_seed(0)), 1, torch.Generator().manual_seed(0))
    if isinstance(result, cavia.ContextRegressor | cavia.ContextClassifier):
        result.fit(inputs_of_rows(), targets_of(result))
    if isinstance(result, cavia.RunFolder):
        cavia.fit(learner(), cavia.Sine(), 1, run_dir=result.path, progress=False)
    return result


def right_arguments(name: str, call: Callable[..., Any]) -> dict[str, Any]:
    """Values for the arguments that must be given, and for those that would take long by themselves."""
    owner = name.rpartition(".")[2]
    return {
        key: right_value(owner, key, hint, getattr(call, "__self__", None))
        for key, (parameter, hint) in parameters_of(call).items()
        if parameter.default is inspect.Parameter.empty or key in SMALL or f"{owner}.{key}" in BY_NAME
    }


def cases(name: str, get: Callable[[], Callable[..., Any]], seed: int) -> Iterator[Case]:
    """The misuses of one callable. LookupError: attacks/values.py lacks a right value."""
    owner = name.rpartition(".")[2]
    baseline = right_arguments(name, get())
    for key, (_, hint) in parameters_of(get()).items():
        for value in wrong_values(seed):
            if key in LONG and isinstance(value, int | float) and 1000 < value <= LONG[key]:
                continue

            def run(key: str = key, value: Any = value) -> Any:
                torch.manual_seed(0)
                result = get()(**{**baseline, **fresh(owner, baseline), key: value})
                return list(islice(result, 2)) if isinstance(result, Iterator) else result

            judge = _unless_finite if all_finite(value) else lambda result: None  # NaN in, NaN out
            may_last = name.endswith(".export")  # the exporter takes its seconds
            yield Case(name, key, value, run, _refusal(value, hint), judge, may_last)


def fresh(owner: str, baseline: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a call uses up or writes to, made anew."""
    return {key: right_value(owner, key, Any) for key in ("path", "generator", "run_dir") if key in baseline}


def _unless_finite(result: Any) -> str | None:
    return None if all_finite(result) else "numbers that are not finite"


def _refusal(value: Any, hint: Any) -> str | None:
    """Why a value of this kind must not be taken, by the annotation; None if it may."""
    if hint is Any or _is_of(value, hint) or _converts(value, hint):
        return None
    return f"a {type(value).__name__} was taken for {hint}"


def _is_of(value: Any, hint: Any) -> bool:
    try:
        return is_bearable(value, hint)
    except (TypeError, RuntimeError):  # a tensor without axes has no length
        return False


def _converts(value: Any, hint: Any) -> bool:
    """Whether a value becomes one of the annotated kind without loss: 2 for 2.0, NumPy's numbers, an array's tensor."""
    if isinstance(value, bool):
        return False
    if isinstance(value, np.generic):
        value = value.item()
        if _is_of(value, hint):
            return True
    if isinstance(value, int) and _is_of(float(min(value, 10**300)), hint):
        return True
    if _is_of(torch.zeros(1), hint):
        return isinstance(value, np.ndarray | list | tuple | int | float)
    if isinstance(value, torch.Tensor | np.ndarray) and value.size and str(getattr(value, "device", "")) != "meta":
        return hasattr(value, "tolist") and not getattr(value, "is_sparse", False) and _is_of(value.tolist(), hint)
    if isinstance(value, tuple | list | range) and all(type(part) is int for part in value):
        return _is_of(tuple(value), hint) or _is_of(tuple(map(float, value)), hint)
    return isinstance(value, list) and _is_of(tuple(value), hint)
