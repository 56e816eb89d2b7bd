"""A learner's adaptation and prediction as one ONNX graph."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from cavia.compiler.compiling import is_compiling
from cavia.errors import CaviaError, missing_package, require_steps
from cavia.learners.adapted import CONTEXT
from cavia.learners.base import Learner
from cavia.learners.decompositions import table
from cavia.learners.example import Points, example_points
from cavia.learners.gradient import GradientLearner
from cavia.learners.graphs import ONE_AT_A_TIME
from cavia.learners.inner import exporting
from cavia.tasks.batch import TaskBatch
from cavia.tensor_file import checked_path, write_atomically

TOLERANCE = 1e-4  # of the graph's numbers, relative to the largest: rounding is far below, a wrong graph far above


def export(
    learner: Learner, path: str | PathLike[str], example: TaskBatch | None, steps: int | None, mask: bool
) -> None:
    """Write the learner to `path` as an ONNX graph; `Learner.export` says how."""
    path = checked_path(path)
    steps = require_steps("steps", learner.inner_steps if steps is None else steps)
    _require_packages()
    points = example_points(learner, example, mask)
    plain = copy.deepcopy(learner).cpu().eval().requires_grad_(False)
    with torch.no_grad():
        _outputs(plain, points.resized(2, 3, 2), steps)  # if something is wrong, this says so
    try:
        with ONE_AT_A_TIME, _quietly(), torch.no_grad():
            content = _graph(plain, points, steps).SerializeToString()
            problem = _difference(plain, points, steps, content)
    except Exception as error:  # what a network of any code may meet in the tracer and the exporter
        while error.__cause__ is not None:  # the exporter's own words say where it failed, not why
            error = error.__cause__  # type: ignore[assignment]
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
    if problem:
        name = f"{type(learner).__name__} on {type(learner.model).__name__}"
        raise CaviaError(f"{name} cannot be exported to ONNX: {problem}")
    write_atomically(path, content)


def _require_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError as error:
            raise missing_package("export", name, "onnx") from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's warnings, which are about packages and its own code."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def _outputs(learner: Learner, points: Points, steps: int) -> dict[str, Tensor]:
    """What the graph returns, by name."""
    adapted = learner._infer(points.support_x, points.support_y, points.support_mask, steps, None)
    outputs = {"prediction": learner.respond(points.query_x, adapted)}
    if CONTEXT in adapted:
        outputs[CONTEXT] = adapted.context
    return outputs


def _graph(learner: Learner, points: Points, steps: int) -> Any:
    """The learner as an ONNX model: all tasks at once where it can be, else a loop over them in the graph."""
    own_weights = isinstance(learner, GradientLearner) and learner.fast_names != (CONTEXT,)
    one_task = own_weights or getattr(learner.model, "mixes_points", False)  # vmap and norms fix the number of tasks
    model = _traced(learner, points, steps, one_task)
    model = _looped(model) if one_task else model
    free = {**dict.fromkeys(points.present(), "support"), "query_x": "query", "prediction": "query"}
    for value in (*model.graph.input, *model.graph.output):
        for size, name in zip(value.type.tensor_type.shape.dim, ("tasks", free.get(value.name)), strict=False):
            if name:
                size.dim_param = name
    del model.graph.value_info[:]  # with the tracer's names
    return model


def _traced(learner: Learner, points: Points, steps: int, one_task: bool) -> Any:
    """The ONNX model for points [T, K, ...], or [K, ...] of one task; the numbers of tasks and points are free."""
    from torch.fx.experimental.proxy_tensor import make_fx

    # The tracer takes equal sizes for the same one, so the free ones are none of a point's.
    taken = {size for value in points.present().values() for size in value.shape[2:]}
    free = [number for number in range(3, 100) if number not in taken]
    given = points.resized(*free[:3]).present()
    values = tuple(value[0] if one_task else value for value in given.values())
    names: list[str] = []

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        own = Points(*(value.unsqueeze(0) if one_task else value for value in tensors))
        outputs = _outputs(learner, own, steps)
        names[:] = outputs
        return tuple(value.squeeze(0) if one_task else value for value in outputs.values())

    with is_compiling(), exporting():
        trace = make_fx(function, table(), tracing_mode="symbolic", _allow_non_fake_inputs=True)
        graph = trace(*values)
    axes = ("point",) if one_task else ("task", "point")
    for name, node in zip(given, graph.graph.find_nodes(op="placeholder"), strict=True):
        for what, size in zip(axes, node.meta["val"].shape, strict=False):
            if isinstance(size, int) or size.node.maybe_as_int() is not None:
                raise CaviaError(f"its code fixes the number of {what}s of {name}")
    dynamic = dict.fromkeys(range(len(axes)), torch.export.Dim.DYNAMIC)
    exported = torch.export.export(graph, values, dynamic_shapes=(dynamic,) * len(values))
    program = torch.onnx.export(exported, input_names=list(given), output_names=names, dynamo=True, verbose=False)
    assert program is not None  # with dynamo
    return program.model_proto


def _looped(one: Any) -> Any:
    """A model of one task as a model of many: ONNX's Scan repeats it over the leading axis of every input."""
    from onnx import helper

    body, weights = one.graph, list(one.graph.initializer)
    del body.initializer[:]  # they stay outside, once for all tasks
    for weight in weights:  # without steps, a task's context is one of them
        if weight.name in {value.name for value in body.output}:
            body.node.append(helper.make_node("Identity", [f"{weight.name}_given"], [weight.name]))
            weight.name = f"{weight.name}_given"
    outside = []
    for value in (*body.input, *body.output):
        many = copy.deepcopy(value)
        sizes = many.type.tensor_type.shape
        before = list(sizes.dim)
        del sizes.dim[:]
        sizes.dim.add()  # the tasks
        sizes.dim.extend(before)
        outside.append(many)
    ours = {value.name: f"{value.name}_of_a_task" for value in outside}
    for value in (*body.input, *body.output):
        value.name = ours[value.name]
    for node in body.node:
        for names in (node.input, node.output):
            names[:] = [ours.get(name, name) for name in names]
    inputs, outputs = outside[: len(body.input)], outside[len(body.input) :]
    scan = helper.make_node(
        "Scan", [value.name for value in inputs], [value.name for value in outputs],
        body=body, num_scan_inputs=len(inputs),
    )  # fmt: skip
    graph = helper.make_graph([scan], "tasks", inputs, outputs, initializer=weights)
    return helper.make_model(graph, opset_imports=list(one.opset_import), ir_version=one.ir_version)


def _difference(learner: Learner, points: Points, steps: int, content: bytes) -> str | None:
    """How onnxruntime's numbers differ from the learner's, for other tasks and points; None if they do not."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for numbers in ((2, 6, 3), (5, 4, 9)):
        given = points.resized(*numbers)
        wanted = _outputs(learner, given, steps)
        arrays = session.run(list(wanted), {name: value.numpy() for name, value in given.present().items()})
        for (name, right), array in zip(wanted.items(), arrays, strict=True):
            apart = (torch.from_numpy(array) - right).abs().max()
            if not apart <= TOLERANCE * right.abs().max().clamp(min=1):
                return f"{name} would differ by {float(apart):.1g} for {numbers[0]} tasks"
    return None
