"""A trained policy in action, as an animation or a strip of frames."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from cavia.envs.base import TaskEnv
from cavia.envs.cheetah import Cheetah
from cavia.envs.navigation import FARTHEST, NEAR, Navigation
from cavia.envs.rollouts import collect
from cavia.errors import require_at_least
from cavia.learners.acting import actor, adapt_in
from cavia.tasks.batch import seeded_generator
from cavia.tools.opening import open_policy

Frame = NDArray[np.uint8]  # [height, width, 3]
SIZE = (480, 240)  # of a cheetah's frame
SQUARE = 240  # side of a navigation map
STRIP, ACROSS = 8, 4  # frames per strip, and per line of it
CLOSE = (slice(60, 240), slice(120, 360))  # the part of a cheetah's frame in a strip, without empty sides and sky
CAPTION = 26  # height of the line above an episode
TASKS = 10  # test tasks to choose from; more if the task's number is larger
GIF_STEP = 5  # hundredths of a second: the cheetah's control step, in GIF's unit
INK, PALE, GOAL, GROUND = (40, 40, 48), (170, 186, 214), (208, 64, 48), (232, 228, 220)


class Watched:
    """One task's episodes after 0 … `updates` updates, with mean actions, and pictures of them."""

    def __init__(self, path: Path, task: int, updates: int, seed: int = 0):
        """path: a model.cavia next to its run's config.json, or their folder; task: index of the test task."""
        if "DISPLAY" not in os.environ:
            os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo is first imported
        self.learner, self.env, rollouts, how = open_policy(path)
        generator = seeded_generator(seed, "watch")
        tasks = self.env.sample_tasks(max(TASKS, require_at_least("task", task, 0) + 1), generator, "test")
        self.task = tasks[task : task + 1]
        steps = require_at_least("updates", updates, 0)
        stages = adapt_in(self.learner, self.env, self.task, rollouts, steps, generator, how)
        self.returns: list[float] = []
        self.frames: list[list[Frame]] = []  # for each number of updates
        self.note = ""  # set if MuJoCo did not render the frames
        for stage in stages:
            self._record(actor(self.learner, stage.adapted, generator, mean=True), generator)

    def _record(self, act: Callable[[Tensor], Tensor], generator: torch.Generator) -> None:
        """One more episode."""
        recorder = _recorder(self.env)

        def watched(observation: Tensor) -> Tensor:
            recorder.look()
            return act(observation)

        self.returns.append(collect(self.env, self.task, watched, 1, generator).returns.item())
        self.frames.append(recorder.pictures())
        self.note = recorder.note

    def picture(self, kind: str) -> bytes:
        """ "gif": the episodes beside or below each other, moving; "png": frames of each, with a caption above."""
        is_cheetah = isinstance(self.env, Cheetah)
        captions = ["before any update", *(f"after {n} update{'s' * (n != 1)}" for n in range(1, len(self.frames)))]
        if kind == "png":
            close = [[frame[CLOSE] if is_cheetah else frame for frame in frames] for frames in self.frames]
            blocks = [_captioned(_block(frames), text) for frames, text in zip(close, captions, strict=True)]
            return _encoded([np.concatenate(blocks, axis=0)], "PNG")
        longest = max(len(frames) for frames in self.frames)
        padded = [
            [_captioned(frame, text) for frame in frames + [frames[-1]] * (longest - len(frames))]
            for frames, text in zip(self.frames, captions, strict=True)
        ]
        axis = 0 if is_cheetah else 1
        return _encoded([np.concatenate(together, axis=axis) for together in zip(*padded, strict=True)], "GIF")


def _recorder(env: TaskEnv) -> "_Map | _Side":
    return _Map(env) if isinstance(env, Navigation) else _Side(env)  # type: ignore[arg-type]  # the rest are cheetahs


class _Map:
    """The point robot's path, seen from above."""

    note = ""

    def __init__(self, env: Navigation):
        self.env, self.places = env, []  # type: tuple[Navigation, list[list[float]]]

    def look(self) -> None:
        self.places.append(self.env.state()["position"][0, 0].tolist())
        self.goal = self.env.state()["goal"][0, 0].tolist()

    def pictures(self) -> list[Frame]:
        return [self._draw(self.places[: step + 1]) for step in range(len(self.places))]

    def _draw(self, places: list[list[float]]) -> Frame:
        image = Image.new("RGB", (SQUARE, SQUARE), "white")
        draw = ImageDraw.Draw(image)
        unit = SQUARE / (4 * FARTHEST)

        def at(place: Sequence[float]) -> tuple[float, float]:
            return SQUARE / 2 + place[0] * unit, SQUARE / 2 - place[1] * unit

        def dot(place: Sequence[float], radius: float, colour: tuple[int, int, int]) -> None:
            x, y = at(place)
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

        draw.rectangle((*at((-FARTHEST, FARTHEST)), *at((FARTHEST, -FARTHEST))), outline=GROUND)
        dot(self.goal, max(unit * NEAR, 5), GOAL)
        if len(places) > 1:
            draw.line([at(place) for place in places], fill=PALE, width=2)
        dot(places[-1], 4, INK)
        return np.asarray(image)


class _Side:
    """The cheetah from the side: MuJoCo's rendering where there is OpenGL, else its limbs drawn as thick lines."""

    def __init__(self, env: Cheetah):
        self.env, self.positions, self.note = env, [], ""  # type: tuple[Cheetah, list[NDArray[np.float64]], str]

    def look(self) -> None:
        self.positions.append(self.env.simulator.positions[0].copy())

    def pictures(self) -> list[Frame]:
        import mujoco

        model = self.env.simulator.model
        data = mujoco.MjData(model)
        if problem := opengl_problem():
            self.note = f"no off-screen OpenGL here ({problem}): limbs drawn as lines; MUJOCO_GL=egl or osmesa may help"
            return [self._limbs(mujoco, data, where) for where in self.positions]
        with mujoco.Renderer(model, height=SIZE[1], width=SIZE[0]) as renderer:
            return [self._render(renderer, data, where) for where in self.positions]

    def _render(self, renderer: Any, data: Any, where: NDArray[np.float64]) -> Frame:
        import mujoco

        data.qpos[:] = where
        mujoco.mj_forward(self.env.simulator.model, data)
        renderer.update_scene(data, camera="track")
        return renderer.render().copy()

    def _limbs(self, mujoco: Any, data: Any, where: NDArray[np.float64]) -> Frame:
        """Draw the capsules, which lie in the x–z plane."""
        model = self.env.simulator.model
        data.qpos[:] = where
        mujoco.mj_kinematics(model, data)
        image = Image.new("RGB", SIZE, "white")
        draw = ImageDraw.Draw(image)
        unit, ground, left = SIZE[0] / 3.0, SIZE[1] - 30, float(where[0]) - 1.5
        draw.rectangle((0, ground, SIZE[0], SIZE[1]), fill=GROUND)
        for mark in np.arange(np.ceil(left), left + 3, 0.5):  # metres, so that movement shows
            x = (mark - left) * unit
            draw.line((x, ground, x, ground + (16 if mark % 1 == 0 else 8)), fill=INK)
        for geom in range(model.ngeom):
            if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_CAPSULE:
                continue
            along = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1]
            ends = [data.geom_xpos[geom] - along, data.geom_xpos[geom] + along]
            points = [((end[0] - left) * unit, ground - end[2] * unit) for end in ends]
            radius = model.geom_size[geom, 0] * unit
            draw.line(points, fill=INK, width=round(2 * radius))
            for x, y in points:
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=INK)
        return np.asarray(image)


@cache
def opengl_problem() -> str | None:
    """Why MuJoCo cannot render here; None: it can. Tried in a separate process, because a driver may abort it."""
    model = "<mujoco><worldbody><geom size='1'/></worldbody></mujoco>"
    code = f'import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string("{model}"), 8, 8).render()'
    try:
        tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "it hangs"
    lines = [line for line in tried.stderr.splitlines() if line.strip()]
    return None if tried.returncode == 0 else (lines[-1].strip() if lines else f"code {tried.returncode}")


def _spread(frames: list[Frame], count: int) -> list[Frame]:
    """`count` evenly spaced frames, from first to last."""
    return [frames[int(index)] for index in np.linspace(0, len(frames) - 1, count).round()]


def _block(frames: list[Frame]) -> Frame:
    """Frames from first to last, in lines of `ACROSS`."""
    chosen = _spread(frames, STRIP)
    return np.concatenate([np.concatenate(chosen[i : i + ACROSS], axis=1) for i in range(0, STRIP, ACROSS)], axis=0)


def _captioned(frame: Frame, text: str) -> Frame:
    """The frame below a line of text."""
    image = Image.new("RGB", (frame.shape[1], CAPTION), "white")
    ImageDraw.Draw(image).text((8, CAPTION / 2), text, fill=INK, font=ImageFont.load_default(15), anchor="lm")
    return np.concatenate([np.asarray(image), frame], axis=0)


def _encoded(pictures: Sequence[Frame], kind: str) -> bytes:
    file = io.BytesIO()
    first, *rest = [Image.fromarray(picture) for picture in pictures]
    more: Any = {"save_all": True, "append_images": rest, "duration": 10 * GIF_STEP, "loop": 0} if kind == "GIF" else {}
    first.save(file, kind, **more)
    return file.getvalue()
