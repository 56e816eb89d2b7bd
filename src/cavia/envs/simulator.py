"""Many copies of one MuJoCo model, stepped together."""

import contextlib
import ctypes
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cavia.envs.optional import optional
from cavia.errors import CaviaError, require_at_least
from cavia.machine import cores

Array: TypeAlias = NDArray[np.float64]

LARGEST = 1e10  # MuJoCo's own limit for a valid state (mjMAXVAL)


class Unstable(Exception):
    """The simulation of one copy broke down: its index, and what is wrong with it."""

    def __init__(self, index: int, problem: str):
        super().__init__(index, problem)
        self.index, self.problem = index, problem


@contextlib.contextmanager
def warnings_of_mujoco() -> Iterator[list[str]]:
    """Collect MuJoCo's warnings, which it would print and append to a file MUJOCO_LOG.TXT in the current folder."""
    mujoco = optional("mujoco")
    warned: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(warned.append)
    try:
        yield warned
    finally:
        mujoco.set_mju_user_warning(before)


class Simulator(ABC):
    """N copies of a model; `physics` [N, 1 + nq + nv] holds the time, the positions and the velocities of each.

    A copy that breaks down keeps its broken state, which `step` detects, instead of being reset silently.
    """

    def __init__(self, model: Any, frame_skip: int, warmstart: bool):
        mujoco = optional("mujoco")
        self.model, self.frame_skip = model, frame_skip
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        if not warmstart:
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART
        self.seconds = model.opt.timestep * frame_skip  # of a step
        self.full_physics = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self.physics: Array = np.empty((0, mujoco.mj_stateSize(model, self.full_physics)))

    @property
    def positions(self) -> Array:
        """[N, nq]"""
        return self.physics[:, 1 : 1 + self.model.nq]

    @property
    def velocities(self) -> Array:
        """[N, nv]"""
        return self.physics[:, 1 + self.model.nq : 1 + self.model.nq + self.model.nv]

    def reset(self, positions: Array, velocities: Array) -> None:
        """Start one copy for each row of positions [N, nq] and velocities [N, nv]."""
        physics = np.zeros((len(positions), self.physics.shape[1]))
        physics[:, 1:] = np.concatenate((positions, velocities), axis=1)
        self.load(physics, None)

    def step(self, control: Array) -> None:
        """Hold the controls [N, nu] for `frame_skip` steps of MuJoCo."""
        before = self.physics
        with warnings_of_mujoco() as warnings:
            self.physics = self._simulate(control)
        with np.errstate(invalid="ignore"):
            broken = ~(np.abs(self.physics) < LARGEST).all(axis=1)
        # Both simulators stop at any warning, so the copy's clock falls behind.
        broken |= ~(np.abs(self.physics[:, 0] - before[:, 0] - self.seconds) < 0.5 * self.model.opt.timestep)
        if broken.any():
            index = int(broken.argmax())
            raise Unstable(index, self._problem(index, warnings))

    def _problem(self, index: int, warnings: Sequence[str]) -> str:
        """What is wrong with one copy: its first invalid number, otherwise MuJoCo's warning."""
        for name, values in (("qpos", self.positions[index]), ("qvel", self.velocities[index])):
            for number, value in enumerate(values):
                if not abs(value) < LARGEST:
                    return f"{name}[{number}] is {value:g}, MuJoCo's limit is ±{LARGEST:g}"
        return f"MuJoCo says: {' '.join(warnings[-1].split())}" if warnings else "its clock stopped"

    @abstractmethod
    def load(self, physics: Array, warmstart: Array | None) -> None:
        """Continue from `physics` [N, …] and the solver's last accelerations [N, nv]; None: a cold start."""

    @abstractmethod
    def warmstart(self) -> Array:
        """The accelerations from which the solver starts next, [N, nv]."""

    @abstractmethod
    def _simulate(self, control: Array) -> Array:
        """The physics after a step."""


class ListSimulator(Simulator):
    """One `MjData` per copy, stepped in a Python loop: the reference."""

    def load(self, physics: Array, warmstart: Array | None) -> None:
        mujoco = optional("mujoco")
        self.physics = physics.copy()
        self._data = [mujoco.MjData(self.model) for _ in physics]
        with warnings_of_mujoco():
            for row, data in enumerate(self._data):
                mujoco.mj_setState(self.model, data, physics[row], self.full_physics)
                if warmstart is None:
                    mujoco.mj_forward(self.model, data)
                else:
                    data.qacc_warmstart[:] = warmstart[row]

    def warmstart(self) -> Array:
        return np.array([data.qacc_warmstart for data in self._data])

    def _simulate(self, control: Array) -> Array:
        mujoco, physics = optional("mujoco"), np.empty_like(self.physics)
        for row, data in enumerate(self._data):
            data.ctrl[:] = control[row]
            for _ in range(self.frame_skip):
                mujoco.mj_step(self.model, data)
                if any(data.warning.number):
                    break
            mujoco.mj_getState(self.model, data, physics[row], self.full_physics)
        return physics


class RolloutSimulator(Simulator):
    """One call of `mujoco.rollout` per step, on a pool of threads that lives as long as the simulator.

    Each call starts the solver from zero, so the results differ from `ListSimulator`'s in the last digits, unless both
    run without warm starts.
    """

    def __init__(self, model: Any, frame_skip: int, warmstart: bool, threads: int):
        super().__init__(model, frame_skip, warmstart)
        self.threads = threads
        self._pool: Any = None
        mujoco = optional("mujoco")
        self._data = [mujoco.MjData(model) for _ in range(threads)]
        _FORKABLE.add(self)

    def load(self, physics: Array, warmstart: Array | None) -> None:
        self.physics = physics.copy()
        copies = len(physics)
        self._models = [self.model] * copies
        self._states = np.empty((copies, self.frame_skip, physics.shape[1]))
        self._sensors = np.empty((copies, self.frame_skip, self.model.nsensordata))

    def warmstart(self) -> Array:
        return np.zeros_like(self.velocities)

    def abandon(self) -> None:
        """In a forked child: drop the pool without closing it, because joining threads that do not exist hangs."""
        if self._pool is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._pool.rollout_))
            self._pool = None

    def _simulate(self, control: Array) -> Array:
        if self._pool is None:
            self._pool = optional("mujoco.rollout").Rollout(nthread=self.threads if self.threads > 1 else 0)
        held = np.repeat(control[:, None], self.frame_skip, axis=1)  # [N, frame_skip, nu]
        self._pool.rollout(
            self._models, self._data, np.ascontiguousarray(self.physics), held,
            skip_checks=True, nstep=self.frame_skip, state=self._states, sensordata=self._sensors,
        )  # fmt: skip
        return self._states[:, -1].copy()


_FORKABLE: "weakref.WeakSet[RolloutSimulator]" = weakref.WeakSet()


def _abandon_pools() -> None:
    for simulator in list(_FORKABLE):
        simulator.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_pools)


def make_simulator(backend: str, path: str, frame_skip: int, warmstart: bool, threads: int | None) -> Simulator:
    """A simulator of the XML model at `path`: "rollout" on `threads` threads (None: every core), or "list"."""
    threads = cores() if threads is None else require_at_least("threads", threads, 1)
    mujoco = optional("mujoco")
    with warnings_of_mujoco():
        model = mujoco.MjModel.from_xml_path(path)
    if backend == "list":
        return ListSimulator(model, frame_skip, warmstart)
    if backend == "rollout":
        return RolloutSimulator(model, frame_skip, warmstart, threads)
    raise CaviaError(f"unknown backend {backend!r}; choose from list, rollout")
