"""Reinforcement learning with a task axis: environments that step all tasks × rollouts at once.

MuJoCo and Gymnasium are imported when they are first needed: pip install "cavia-torch[rl]".
"""

from cavia.envs.base import Step, TaskEnv
from cavia.envs.cheetah import CheetahDirection, CheetahVelocity
from cavia.envs.gym import GymTasks, register
from cavia.envs.navigation import Navigation
from cavia.envs.rollouts import Rollouts, collect

__all__ = [
    "CheetahDirection",
    "CheetahVelocity",
    "GymTasks",
    "Navigation",
    "Rollouts",
    "Step",
    "TaskEnv",
    "collect",
    "register",
]
