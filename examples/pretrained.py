"""A network that you have already, frozen, with five numbers for each task.

Here it was trained on all curves at once, so the best it could do is their average. Its weights stay as they are;
`cavia.condition` adds the numbers, and training finds out what they should do.
"""

import argparse

import torch
from torch import nn

import cavia

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--iterations", type=int, default=3000, help="of both trainings (default: 3000)")
options = parser.parse_args()

torch.manual_seed(0)
curves, generator = cavia.Sine(), torch.Generator().manual_seed(0)
network = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
adam = torch.optim.Adam(network.parameters())
for _ in range(options.iterations):  # stands for whatever made your network
    batch = curves.sample(25, 10, 10, generator)
    loss = (network(batch.support_x) - batch.support_y).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()

model = cavia.condition(network, at=["0", "2"], context=5, example=torch.zeros(8, 1), freeze=True)
learner = cavia.CAVIA(model, loss="mse", inner_lr=0.1, inner_steps=2)
cavia.fit(learner, curves, options.iterations)

trained = sum(weight.numel() for weight in learner.parameters() if weight.requires_grad)
print(
    f"{trained} weights of the conditioning were trained, the network's own stay; a task has {model.context} numbers."
)
print(cavia.evaluate(learner, curves, tasks=1000, steps=2))
learner.save("curves.cavia")  # what was trained, and fingerprints of the network
learner = cavia.load("curves.cavia", module=network)
