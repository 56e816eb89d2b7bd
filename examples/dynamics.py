"""A dynamical system: predict how a new pendulum swings from one recording of its motion.

Pendulums differ in length and friction, which nobody measures. The context stands in for both.
Put your own equations, or recordings through `cavia.windows`, in place of the simulation.
"""

import argparse
from itertools import product
from typing import ClassVar

import torch

import cavia


class Pendulum(cavia.Dynamics):
    """The state is angle and speed; the pendulum's length and friction make it a task."""

    names = ("length", "friction")
    systems: ClassVar = {
        "train": list(product((0.8, 1.0, 1.2, 1.4), (0.1, 0.3, 0.5))),
        "val": list(product((0.9, 1.3), (0.2, 0.4))),
        "test": list(product((0.85, 1.1, 1.35), (0.15, 0.45))),
    }
    ranges = ((-1.5, 1.5), (-1.0, 1.0))  # of the first angle and speed
    dt, steps, trajectories = 0.1, 30, 8

    @staticmethod
    def derivative(state, parameters):
        (angle, speed), (length, friction) = state.unbind(-1), parameters.unbind(-1)
        return torch.stack([speed, -9.81 / length * angle.sin() - friction * speed], -1)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--iterations", type=int, default=1000, help="of training (default: 1000)")
options = parser.parse_args()

torch.manual_seed(0)
pendulums = Pendulum(support_window=1, query_window=4)  # adapt to single steps, train on four at a time
learner = cavia.GaussNewton(cavia.Flow(states=2, hidden=(64, 64), context=2, tempo=0.3), damping=0.01)
outer = cavia.Adam(lr=0.005, cooldown=0.5)
cavia.fit(learner, pendulums, options.iterations, tasks_per_batch=12, outer=outer, validation=cavia.Validation(tasks=4))

batch = pendulums.sample(6, 1, 3, torch.Generator().manual_seed(0), split="test")  # one recording known of each
x, y = batch.support_x, batch.support_y
for name, steps in (("before adapting", 0), ("after one step", 1)):
    error = (learner.predict(batch.query_x, learner.adapt(x, y, steps=steps)) - batch.query_y).square().mean()
    print(f"six new pendulums, mean squared error over three seconds, {name}: {error:.4f}")

context = learner.adapt(x, y).context
for length, friction, phi in zip(batch.attributes["length"], batch.attributes["friction"], context, strict=True):
    print(f"length {length:.2f}, friction {friction:.2f}: context {phi[0]:+.2f} {phi[1]:+.2f}")
