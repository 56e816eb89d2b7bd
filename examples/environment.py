"""An environment of your own: a heater learns what temperature whoever is in the room likes, from rewards alone.

Needs `pip install 'cavia-torch[rl]'`.
"""

import argparse

import gymnasium
import numpy as np
import torch

import cavia

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--iterations", type=int, default=40, help="of training (default: 40)")
options = parser.parse_args()


class Heater(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-30.0, 30.0, (1,), np.float32)  # the temperature of the room
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)  # cool or heat
    liked = 20.0  # the task; no observation tells it

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.temperature = self.np_random.uniform(18.0, 22.0)
        return self._seen(), {}

    def step(self, action):
        self.temperature += float(action[0])
        return self._seen(), -abs(self.temperature - self.liked), False, False, {}

    def _seen(self):
        return np.array([self.temperature - 20], np.float32)


people = {"train": np.linspace(16, 24, 33), "val": np.linspace(16.1, 23.9, 10), "test": np.linspace(16.2, 23.8, 20)}
env = cavia.envs.GymTasks(Heater, people, set_task=lambda heater, liked: setattr(heater, "liked", liked), horizon=20)

torch.manual_seed(0)
policy = cavia.GaussianPolicy(env.observations, env.actions, hidden=(32, 32), context=3)
learner = cavia.CAVIA(policy, policy.loss, inner_lr=1.0)
cavia.fit(learner, env, options.iterations, tasks_per_batch=8, support=8, validation=cavia.Validation(tasks=4))

print("return in rooms of people that training never met, after 0, 1 and 2 updates:")
print(cavia.evaluate(learner, env, tasks=20, support=8, steps=2))
