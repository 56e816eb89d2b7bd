"""What every learner promises, by one list of learners."""

import pytest
import torch

import cavia

LEARNERS = {
    "CAVIA": lambda model, loss="mse": cavia.CAVIA(model, loss, inner_steps=2),
    "CAVIA, Adam": lambda model, loss="mse": cavia.CAVIA(model, loss, 0.01, 2, optimiser="adam"),
    "CAVIA, momentum": lambda model, loss="mse": cavia.CAVIA(model, loss, 0.1, 2, optimiser="momentum"),
    "CAVIA, Gauss–Newton": lambda model, loss="mse": cavia.CAVIA(model, loss, 0.1, 2, optimiser="gauss_newton"),
    "CAVIA, learned start": lambda model, loss="mse": cavia.CAVIA(model, loss, learn_init=True),
    "MAML": lambda model, loss="mse": cavia.MAML(model, loss),
    "ANIL": lambda model, loss="mse": cavia.ANIL(model, loss),
    "Meta-SGD": lambda model, loss="mse": cavia.MetaSGD(model, loss),
    "Meta-SGD on context": lambda model, loss="mse": cavia.MetaSGD(model, loss, inner_lr=0.5, adapts="context"),
    "Reptile": lambda model, loss="mse": cavia.Reptile(model, loss, inner_steps=2),
    "CAVIA+MAML": lambda model, loss="mse": cavia.CaviaMAML(model, loss),
    "MAML++": lambda model, loss="mse": cavia.MAMLPlusPlus(model, loss, inner_steps=2),
    "iMAML": lambda model, loss="mse": cavia.ImplicitMAML(model, loss),
    "MT-net": lambda model, loss="mse": cavia.MTNet(model, loss).eval(),
    "Meta-LSTM": lambda model, loss="mse": cavia.MetaLSTM(model, loss, inner_steps=2, hidden=3),
    "Gauss–Newton": lambda model, loss="mse": cavia.GaussNewton(model, loss),
}
each_learner = pytest.mark.parametrize("name", LEARNERS)


def make(name, loss="mse", **model):
    torch.manual_seed(0)
    return LEARNERS[name](cavia.MLP(**{"inputs": 1, "outputs": 1, "hidden": (8,), "context": 3} | model), loss)


def batch_of(tasks=4, support=10, query=6):
    return cavia.Sine().sample(tasks, support, query, torch.Generator().manual_seed(1))


@each_learner
def test_adapting_does_not_touch_the_learner(name):
    learner, batch = make(name), batch_of()
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    fast = learner.adapt(batch.support_x, batch.support_y)
    assert all(torch.equal(before[key], value) for key, value in learner.state_dict().items())
    assert all(parameter.grad is None for parameter in learner.parameters())
    assert all(len(value) == 4 and not value.requires_grad for value in fast.values())
    assert learner.predict(batch.query_x, fast).shape == (4, 6, 1)


@each_learner
def test_adapting_is_the_same_in_training_in_inference_mode_and_inside_vmap(name):
    learner, batch = make(name), batch_of()
    x, y = batch.support_x, batch.support_y
    fast = learner.adapt(x, y)
    with torch.enable_grad():
        trained = learner.infer(x, y, None, learner.inner_steps, None)  # with the graph for the outer gradient
    with torch.inference_mode():
        inferred = learner.adapt(x, y)
    mapped = torch.vmap(lambda x, y: {k: v[0] for k, v in learner.adapt(x[None], y[None]).items()})(x, y)
    for other in (trained, inferred, mapped):
        assert all(torch.allclose(other[key], value, atol=1e-6) for key, value in fast.items())


@each_learner
def test_adapting_lowers_the_support_loss(name):
    learner, batch = make(name), batch_of()
    losses = []
    for steps in (0, 1):
        fast = learner.adapt(batch.support_x, batch.support_y, steps=steps)
        losses.append(learner.mean_loss(learner.predict(batch.support_x, fast), batch.support_y).mean())
    assert losses[1] < losses[0]


@each_learner
def test_steps_can_be_taken_one_by_one(name):
    learner, batch = make(name), batch_of()
    at_once = learner.adapt(batch.support_x, batch.support_y, steps=3)
    fast = None
    for steps in (0, 1, 1, 1):
        fast = learner.adapt(batch.support_x, batch.support_y, steps=steps, start=fast)
    for key in at_once.names:
        torch.testing.assert_close(fast[key], at_once[key])


@each_learner
def test_padding_does_not_count(name):
    learner, batch = make(name), batch_of()
    padded = cavia.TaskBatch(
        torch.cat([batch.support_x, torch.full((4, 5, 1), 9.0)], 1),
        torch.cat([batch.support_y, torch.full((4, 5, 1), -7.0)], 1),
        torch.cat([batch.query_x, torch.full((4, 2, 1), 9.0)], 1),
        torch.cat([batch.query_y, torch.full((4, 2, 1), -7.0)], 1),
        support_mask=torch.arange(15).expand(4, 15) < 10,
        query_mask=torch.arange(8).expand(4, 8) < 6,
    )
    torch.testing.assert_close(learner.task_losses(padded), learner.task_losses(batch), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learner(padded), learner(batch), rtol=1e-4, atol=1e-5)


@each_learner
def test_nothing_in_the_padding_reaches_the_gradients(name):
    learner, batch = make(name), batch_of()
    mask = torch.arange(10).expand(4, 10) < 7
    poisoned = [value.where(mask.unsqueeze(-1), float("nan")) for value in (batch.support_x, batch.support_y)]
    fast = learner.adapt(*poisoned, mask=mask)
    assert all(value.isfinite().all() for value in fast.values())
    query = torch.arange(6).expand(4, 6) < 5
    hidden = [value.where(query.unsqueeze(-1), float("nan")) for value in (batch.query_x, batch.query_y)]
    learner(cavia.TaskBatch(*poisoned, *hidden, mask, query)).mean().backward()
    assert all(p.grad.isfinite().all() for p in learner.parameters() if p.grad is not None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CAVIA", "Meta-SGD on context"])
def test_a_thousand_tasks_at_once_are_each_alone(name):
    learner = make(name)
    batch = batch_of(tasks=1000)
    together = learner.adapt(batch.support_x, batch.support_y)["context"]
    alone = [learner.adapt(part.support_x, part.support_y)["context"] for part in batch.split(1)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


@each_learner
def test_interpolation_goes_from_one_task_to_another(name):
    learner, batch = make(name), batch_of(tasks=1)
    ends = [learner.adapt(batch.support_x, scale * batch.support_y) for scale in (1, -2)]
    between = learner.interpolate(*ends, 5)
    for key, value in between.items():
        assert len(value) == 5
        assert torch.equal(value[:1], ends[0][key])
        torch.testing.assert_close(value[-1:], ends[1][key])
        torch.testing.assert_close(value[2], (ends[0][key][0] + ends[1][key][0]) / 2)
    assert learner.predict(batch.query_x.expand(5, -1, -1), between).shape == (5, 6, 1)
    with pytest.raises(cavia.CaviaError, match="from one task to one other, got 5 tasks"):
        learner.interpolate(between, ends[0], 3)


def test_the_start_is_a_copy_of_the_parameters():
    learner, batch = make("MAML"), batch_of()
    fast = learner.adapt(batch.support_x, batch.support_y, steps=0)
    before = {name: value.clone() for name, value in fast.items()}
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(1)
    assert all(torch.equal(fast[name], before[name]) for name in fast.names)
    assert not any(value.requires_grad for value in fast.values())


@each_learner
def test_double_precision_is_kept(name, tmp_path):
    torch.manual_seed(0)
    learner, batch = LEARNERS[name](cavia.MLP(1, 1, hidden=(8,), context=3).double()), batch_of()
    fast = learner.adapt(batch.support_x.double(), batch.support_y.double())
    assert all(value.dtype == torch.float64 for value in fast.values())
    learner.save(tmp_path / "double.cavia")
    assert all(p.dtype == torch.float64 for p in cavia.load(tmp_path / "double.cavia").parameters())
    single = learner.adapt(batch.support_x, batch.support_y)  # float32 becomes the learner's own type
    assert all(torch.equal(value, single[name]) for name, value in fast.items())


def test_masks_of_other_types_and_what_another_learner_adapted_are_named():
    learner, batch = make("CAVIA"), batch_of()
    with pytest.raises(cavia.CaviaError, match=r"mask must be of type torch\.bool"):
        learner.adapt(batch.support_x, batch.support_y, mask=torch.ones(4, 10))
    with pytest.raises(cavia.CaviaError, match="CAVIA adapts context; it was given weight"):
        learner.predict(batch.query_x, cavia.Adapted({"weight": torch.zeros(4, 3)}))


def test_a_task_without_points_stays_at_the_start():
    learner, batch = make("CAVIA"), batch_of()
    mask = torch.ones(4, 10, dtype=torch.bool)
    mask[2] = False
    context = learner.adapt(batch.support_x, batch.support_y, mask=mask)["context"]
    assert torch.equal(context[2], torch.zeros(3))
    assert (context[[0, 1, 3]] != 0).any(dim=1).all()


@each_learner
def test_saved_and_loaded_predicts_the_same(name, tmp_path):
    learner, batch = make(name), batch_of()
    cavia.fit(learner, cavia.Sine(), 3, tasks_per_batch=2, progress=False, validation=cavia.Validation(0))
    learner.save(tmp_path / "one.cavia")
    loaded = cavia.load(tmp_path / "one.cavia")
    assert type(loaded) is type(learner)
    assert loaded.arguments == learner.arguments
    predictions = [one.predict(batch.query_x, one.adapt(batch.support_x, batch.support_y)) for one in (learner, loaded)]
    assert torch.equal(*predictions)


def test_parameters_are_what_the_outer_loop_trains():
    names = {name: {key for key, _ in make(name).named_parameters()} for name in LEARNERS}
    weights = {f"model.layers.{i}.{kind}" for i in range(2) for kind in ("weight", "bias")}
    assert names["CAVIA"] == names["ANIL"] == names["CAVIA+MAML"] == weights
    assert names["CAVIA, learned start"] == names["MAML"] == names["Reptile"] == weights | {"initial_context"}
    assert len(names["Meta-SGD"]) == 2 * len(names["MAML"])
    assert names["Meta-SGD on context"] == weights | {"rates.context"}


def test_maml_without_extra_inputs_has_no_start_to_learn():
    learner = make("MAML", context=0)
    assert "initial_context" not in dict(learner.named_parameters())
    fast = learner.adapt(*(torch.zeros(2, 3, 1) for _ in range(2)))
    assert "context" not in fast


def test_classification_with_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    learner = make("CAVIA", "cross_entropy", inputs=2, outputs=3)
    x = torch.randn(4, 12, 2, generator=generator)
    labels = torch.randint(3, (4, 12), generator=generator)
    losses = learner.task_losses(cavia.TaskBatch(x, labels, x, labels))
    fast = learner.infer(x, labels, None, 2, None)
    logits = learner.predict(x, fast)
    expected = torch.stack([torch.nn.functional.cross_entropy(logits[i], labels[i]) for i in range(4)])
    torch.testing.assert_close(losses, expected)


def test_a_loss_of_ones_own(tmp_path):
    def huber(prediction, target):
        return torch.nn.functional.smooth_l1_loss(prediction, target, reduction="none").mean(-1)

    learner, batch = make("CAVIA", huber), batch_of()
    assert learner.task_losses(batch).shape == (4,)
    learner.save(tmp_path / "own.cavia")
    with pytest.raises(cavia.CaviaError, match="loss=that_function"):
        cavia.load(tmp_path / "own.cavia")
    assert cavia.load(tmp_path / "own.cavia", loss=huber).loss is huber


def test_a_model_of_ones_own(tmp_path):
    class Line(cavia.ContextModel):
        def __init__(self):
            super().__init__()
            self.context = 2
            self.slope = torch.nn.Parameter(torch.ones(1))

        def stem(self, x):
            return self.slope * x

        def head(self, h, context):
            return h * (1 + context[:, None, :1]) + context[:, None, 1:]

    learner, batch = cavia.CAVIA(Line(), "mse", inner_lr=0.01), batch_of()
    learner.task_losses(batch).mean().backward()
    assert learner.model.slope.grad is not None
    learner.save(tmp_path / "line.cavia")
    assert isinstance(cavia.load(tmp_path / "line.cavia").model, Line)  # because it is imported
    assert cavia.load(tmp_path / "line.cavia", model=Line()).inner_lr == 0.01


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cavia.CAVIA(cavia.MLP(1, 1), "mse", inner_steps=0), "inner_steps must be at least 1, got 0"),
        (lambda: cavia.CAVIA(cavia.MLP(1, 1), "mse", inner_lr=-1.0), "inner_lr must be above 0"),
        (lambda: cavia.CAVIA(cavia.MLP(1, 1), "mse", inner_lr="1"), "inner_lr must be a number, got '1'"),
        (lambda: cavia.CAVIA(cavia.MLP(1, 1), "msee"), "unknown loss 'msee'; did you mean 'mse'"),
        (lambda: cavia.CAVIA(cavia.MLP(1, 1, context=0), "mse"), "context=0; give it at least 1"),
        (lambda: cavia.CAVIA(torch.nn.Linear(1, 1), "mse"), "got Linear.*; cavia.condition makes one"),
        (lambda: cavia.ANIL(cavia.MLP(1, 1), "mse", head="layer.2"), "did you mean 'layers.2'"),
        (lambda: cavia.MetaSGD(cavia.MLP(1, 1), "mse", adapts="all"), "adapts must be"),
    ],
)
def test_bad_arguments_are_named(build, message):
    with pytest.raises(cavia.CaviaError, match=message):
        build()


def test_shapes_that_do_not_match_are_both_named():
    learner, batch = make("CAVIA"), batch_of()
    with pytest.raises(cavia.CaviaError, match=r"\[4, 10, 1\] and \[4, 6, 1\]"):
        learner.adapt(batch.support_x, batch.query_y)
    with pytest.raises(cavia.CaviaError, match=r"\[4, 10, 1\] and \[4, 10, 2\]"):
        learner.adapt(batch.support_x, batch.support_y.repeat(1, 1, 2))
    fast = learner.adapt(batch.support_x, batch.support_y)
    with pytest.raises(cavia.CaviaError, match=r"must be \[2, 3\] for the 2 tasks of x \[2, 6, 1\], got \[4, 3\]"):
        learner.predict(batch.query_x[:2], fast)
    with pytest.raises(cavia.CaviaError, match=r"one value per point, \[4, 10\] .* it returned \[4\]"):
        make("CAVIA", lambda p, t: (p - t).square().mean((1, 2))).adapt(batch.support_x, batch.support_y)


@pytest.mark.parametrize("damage", ["truncated", "tampered", "renamed", "other"])
def test_a_damaged_file_is_refused(damage, tmp_path):
    path = tmp_path / "one.cavia"
    make("CAVIA").save(path)
    content = path.read_bytes()
    changed = {
        "truncated": content[:-10],
        "tampered": content[:-2] + bytes([content[-2] ^ 8]) + content[-1:],
        "renamed": content.replace(b"CAVIA", b"CAVIB"),
        "other": b"\x80\x04\x95pickle",
    }
    path.write_bytes(changed[damage])
    with pytest.raises(cavia.CaviaError, match=r"one\.cavia"):
        cavia.load(path)
    with pytest.raises(cavia.CaviaError, match="there is no file"):
        cavia.load(tmp_path / "none.cavia")
