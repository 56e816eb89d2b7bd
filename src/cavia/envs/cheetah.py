"""HalfCheetah with a target direction or velocity: the MuJoCo problems of Section 5.3 of the paper."""

from abc import abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.envs.base import Step, TaskEnv, spread
from cavia.envs.simulator import Unstable, make_simulator
from cavia.errors import CaviaError, missing_package, require_at_least, require_one_of
from cavia.tasks.batch import shape

FRAME_SKIP = 5
NOISE = 0.1  # of the initial positions (uniform) and velocities (normal)
COST = 0.05  # per squared action
FASTEST = 2.0  # target velocity
OBSERVATIONS = {"paper": 20, "gymnasium": 17}


class Cheetah(TaskEnv):
    """HalfCheetah as in Gymnasium's version 5, for T tasks × R rollouts at once.

    observation: "paper": positions without x, velocities and the torso's position, 20 numbers; "gymnasium": 17,
                 without the torso's position
    backend:     "rollout": one call of `mujoco.rollout` per step on `threads` threads (None: every core);
                 "list": a plain list of `MjData`, the reference
    warmstart:   whether MuJoCo's solver starts from its last solution

    Actions are clipped to [-1, 1]; 0.05·‖a‖² of the clipped action is subtracted from the reward. Forward speed is the
    distance along x in one step, divided by its duration. Simulated in float64; observations and rewards are float32,
    on the device of `tasks`. Episodes last `horizon` steps.
    """

    actions = 6
    bound = 1.0  # actions are clipped to ±bound
    parts = ("threads",)  # no influence on results

    def __init__(
        self,
        horizon: int = 200,
        observation: str = "paper",
        backend: str = "rollout",
        threads: int | None = None,
        warmstart: bool = True,
    ):
        require_one_of("observation", observation, OBSERVATIONS)
        self.horizon = require_at_least("horizon", horizon, 1)
        self.observation, self.observations = observation, OBSERVATIONS[observation]
        self.backend, self.warmstart = backend, warmstart
        self.simulator = make_simulator(backend, model_path(), FRAME_SKIP, warmstart, threads)
        self._torso = self.simulator.model.body("torso").pos.copy()  # its position when all joints are at zero

    @abstractmethod
    def _reward(self, speed: Tensor, tasks: Tensor) -> Tensor:
        """The reward [T, R] for a forward speed [T, R] in tasks [T, 1], before the cost of control."""

    def _start(self, tasks: Tensor, rollouts: int, generator: torch.Generator) -> Tensor:
        model, copies = self.simulator.model, len(tasks) * rollouts
        like: dict[str, Any] = {"generator": generator, "device": generator.device, "dtype": torch.float64}
        positions = model.qpos0 + NOISE * (2 * torch.rand(copies, model.nq, **like) - 1).cpu().numpy()
        velocities = NOISE * torch.randn(copies, model.nv, **like).cpu().numpy()
        self.simulator.reset(positions, velocities)
        self._tasks, self._rollouts = tasks.to(torch.float64)[:, None], rollouts
        return self._observe()

    def _advance(self, action: Tensor) -> Step:
        control = action.detach().to("cpu", torch.float64).clamp(-self.bound, self.bound)  # [T, R, 6]
        before = self.simulator.positions[:, 0]
        try:
            self.simulator.step(control.flatten(0, 1).numpy())
        except Unstable as error:
            raise self._broken(error) from None
        way = torch.from_numpy(self.simulator.positions[:, 0] - before).view(control.shape[:2])
        speed = (way / self.simulator.seconds).to(self._tasks.device)
        reward = self._reward(speed, self._tasks) - COST * control.square().sum(-1).to(speed.device)
        return Step(self._observe(), reward.float(), torch.zeros_like(reward, dtype=torch.bool))

    def _observe(self) -> Tensor:
        positions, velocities = self.simulator.positions, self.simulator.velocities
        parts = [positions[:, 1:], velocities]
        if self.observation == "paper":
            torso = np.tile(self._torso, (len(positions), 1))
            torso[:, [0, 2]] += positions[:, :2]  # the first two joints slide along x and z
            parts.append(torso)
        rows = torch.from_numpy(np.concatenate(parts, axis=1)).float()
        return rows.unflatten(0, (len(self._tasks), self._rollouts)).to(self._tasks.device)

    def _broken(self, error: Unstable) -> CaviaError:
        task, rollout = divmod(error.index, self._rollouts)
        self._done = None  # no episode to continue
        return CaviaError(
            f"the simulation of task {task}, rollout {rollout} broke down at step {self._time}: {error.problem}; "
            "use smaller actions (a smaller standard deviation of the policy) and reset"
        )

    def _state(self) -> dict[str, Tensor]:
        return {
            "tasks": self._tasks,
            "physics": torch.from_numpy(self.simulator.physics.copy()),
            "warmstart": torch.from_numpy(self.simulator.warmstart()),
        }

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        tasks, rollouts = state["done"].shape
        physics, warmstart = state["physics"].cpu(), state["warmstart"].cpu()
        wanted = (tasks * rollouts, self.simulator.physics.shape[1])
        if tuple(physics.shape) != wanted:
            raise CaviaError(f"physics must have shape {list(wanted)}, got {shape(physics)}; pass what state() gave")
        self._tasks, self._rollouts = state["tasks"].clone(), rollouts
        self.simulator.load(physics.numpy(), warmstart.numpy())


class CheetahDirection(Cheetah):
    """Run forward (task 1) or backward (task −1): the reward is ±forward speed.

    Half of the `count` tasks are forward; the odd one is random in "train". An uneven share would make the average
    return depend on the draw.
    """

    def _draw(self, count: int, generator: torch.Generator, split: str) -> Tensor:
        first = torch.randint(2, (1,), generator=generator, device=generator.device) if split == "train" else 0
        return 1.0 - 2.0 * ((torch.arange(count, device=generator.device) + first) % 2)

    def _check_tasks(self, tasks: Tensor) -> None:
        super()._check_tasks(tasks)
        if not (tasks.abs() == 1).all():
            raise CaviaError(f"a direction is 1 or -1, got {tasks[tasks.abs() != 1][0].item()}")

    def _reward(self, speed: Tensor, tasks: Tensor) -> Tensor:
        return tasks * speed


class CheetahVelocity(Cheetah):
    """Run at a given velocity v* in [0, 2]: the reward is −|forward speed − v*|."""

    def _draw(self, count: int, generator: torch.Generator, split: str) -> Tensor:
        return FASTEST * spread(count, 1, generator, split)[:, 0]

    def _reward(self, speed: Tensor, tasks: Tensor) -> Tensor:
        return -(speed - tasks).abs()


def model_path() -> str:
    """The path of Gymnasium's HalfCheetah model."""
    spec = find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise missing_package("the cheetah", "gymnasium, which ships its model", "rl")
    path = Path(spec.origin).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
    if not path.is_file():
        raise missing_package("the cheetah", f"a gymnasium that has {path}", "rl")
    return str(path)
