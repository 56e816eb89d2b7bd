"""MT-net against plain autograd, one task at a time; masks are drawn in training only."""

import pytest
import torch

import cavia
from cavia.learners.adapted import Adapted


def make(**arguments):
    torch.manual_seed(0)
    learner = cavia.MTNet(cavia.MLP(1, 1, (4, 3), context=2), "mse", 0.1, **arguments).double()
    with torch.no_grad():  # away from the start, so that no gradient is zero by symmetry
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = cavia.Sine().sample(3, 6, 5, torch.Generator().manual_seed(1))
    return learner, cavia.TaskBatch(*(getattr(batch, f"{a}_{b}").double() for a in ("support", "query") for b in "xy"))


def predicted(learner, fast, x):
    """T·(W x + b) of each layer, with φ concatenated to the input."""
    h = torch.cat([x, fast["context"].expand(len(x), -1)], 1)
    for layer in range(3):
        transform = learner.transforms[f"layers-{layer}-weight"]
        h = (h @ fast[f"layers.{layer}.weight"].T + fast[f"layers.{layer}.bias"]) @ transform.T
        h = h.clamp(min=0) if layer < 2 else h
    return h


def written_out(learner, batch, masks):
    losses = []
    for i, task in enumerate(batch.split(1)):
        fast = dict(learner.model.named_parameters()) | {"context": learner.initial_context}
        for _ in range(learner.inner_steps):
            loss = (predicted(learner, fast, task.support_x[0]) - task.support_y[0]).square().mean()
            slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            moved = {}
            for (name, value), slope in zip(fast.items(), slopes, strict=True):
                mask = 1.0
                if name != "context":
                    mask = masks[f"layers.{name.split('.')[1]}.weight"][i]
                    mask = mask[:, None] if value.ndim == 2 else mask
                moved[name] = value - 0.1 * mask * slope
            fast = moved
        losses.append((predicted(learner, fast, task.query_x[0]) - task.query_y[0]).square().mean())
    return torch.stack(losses)


@pytest.mark.parametrize("steps", [1, 2])
def test_losses_and_gradients_are_those_of_autograd(steps):
    learner, batch = make(inner_steps=steps)
    learner.eval()
    names = [name for name, value in learner.model.named_parameters() if value.ndim == 2]
    masks = {name: learner.row_logits[name.replace(".", "-")].sigmoid().expand(3, -1) for name in names}
    expected = written_out(learner, batch, masks)
    losses = learner(batch)
    torch.testing.assert_close(losses, expected, rtol=1e-10, atol=1e-12)
    wanted = torch.autograd.grad(expected.mean(), list(learner.parameters()))
    torch.testing.assert_close(torch.autograd.grad(losses.mean(), list(learner.parameters())), wanted)


def test_a_mask_of_one_task_is_kept_over_its_steps():
    learner, batch = make(inner_steps=2)
    names = [name for name, value in learner.model.named_parameters() if value.ndim == 2]
    masks = {n: (torch.rand(3, len(learner.row_logits[n.replace(".", "-")])) > 0.5).double() for n in names}
    start = Adapted.of(learner._starts(3) | {f"memory.mask.{name}": mask for name, mask in masks.items()})
    adapted = learner.infer(batch.support_x, batch.support_y, None, 2, start)
    torch.testing.assert_close(learner.query_losses(batch, adapted), written_out(learner, batch, masks))
    still = masks[names[0]][0] == 0
    same = adapted[names[0]][0] == dict(learner.model.named_parameters())[names[0]]
    assert same.all(1)[still].all()


def test_masks_are_drawn_in_training_only():
    learner, batch = make()
    assert not torch.equal(learner(batch), learner(batch))
    torch.manual_seed(1)
    one = learner(batch)
    torch.manual_seed(1)
    assert torch.equal(one, learner(batch))
    learner.row_logits["layers-0-weight"].data.fill_(3.0)
    drawn = learner._drawn(4000)["memory.mask.layers.0.weight"]
    assert abs((drawn > 0.5).double().mean() - torch.tensor(3.0).sigmoid()) < 0.01
    learner.eval()
    assert torch.equal(learner(batch), learner(batch))


def test_a_network_without_matrices_is_refused():
    class Line(cavia.ContextModel):
        context = 1

        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.ones(1))

        def stem(self, x):
            return self.slope * x

        def head(self, h, context):
            return h + context[:, None]

    with pytest.raises(cavia.CaviaError, match="Line has no weight matrix to train"):
        cavia.MTNet(Line(), "mse")
    with pytest.raises(cavia.CaviaError, match="temperature must be above 0"):
        cavia.MTNet(cavia.MLP(1, 1), "mse", temperature=0.0)


@pytest.mark.slow
def test_it_learns_sine_curves():
    torch.manual_seed(0)
    learner = cavia.MTNet(cavia.MLP(1, 1, context=0), "mse", 0.01)
    before = cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[-1]
    cavia.fit(learner, cavia.Sine(), 300, progress=False, validation=cavia.Validation(0))
    assert cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[-1] < 0.75 * before
