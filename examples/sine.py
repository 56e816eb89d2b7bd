"""A curve from ten points and one step: train on sine curves, adapt to one that training never saw."""

import argparse

import torch

import cavia

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--iterations", type=int, default=5000, help="50,000 in the paper (default: 5000)")
options = parser.parse_args()

torch.manual_seed(0)
learner = cavia.CAVIA(cavia.MLP(inputs=1, outputs=1, hidden=(40, 40), context=5), loss="mse", inner_lr=1.0)
cavia.fit(learner, cavia.Sine(), options.iterations)

x = torch.rand(1, 10, 1) * 10 - 5  # ten points of one new curve: [tasks, points, 1]
adapted = learner.adapt(x, 3 * torch.sin(x + 1))
line = torch.linspace(-5, 5, 200).view(1, 200, 1)
error = (learner.predict(line, adapted) - 3 * torch.sin(line + 1)).square().mean()

print(f"its {adapted.context.numel()} context numbers: {[round(number, 2) for number in adapted.context[0].tolist()]}")
print(f"mean square error over the whole curve, from ten points and one step: {error:.3f}")
print(cavia.evaluate(learner, cavia.Sine(), tasks=1000, steps=1))
