"""python docs/pictures/snap.py: snap.gif, a published model's prediction snapping to ten points of new curves.

Each frame between "before" and "after" has the context on its way along the one gradient step.
"""

import io
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image

import cavia

CURVES = [(3.0, 0.4), (1.2, 2.2), (4.4, 1.3)]  # amplitude and phase
POINTS, BETWEEN, HOLD = 10, 12, 14  # frames: one for each point, then along the step, then after it
INK, CURVE, TRUTH, BAR = "#1f2430", "#0072b2", "#9aa0ac", "#d55e00"


def main() -> None:
    learner = cavia.pretrained("sine")
    generator = torch.Generator().manual_seed(3)
    line = torch.linspace(-5, 5, 200).view(1, 200, 1)
    frames, milliseconds = [], []
    for amplitude, phase in CURVES:
        x = torch.rand(1, POINTS, 1, generator=generator) * 10 - 5
        y = amplitude * torch.sin(x - phase)
        adapted = learner.adapt(x, y)
        truth = amplitude * torch.sin(line - phase)
        for seen in range(1, POINTS + 1):
            frames.append(draw(learner, line, truth, x[:, :seen], y[:, :seen], adapted, 0.0))
            milliseconds.append(90)
        for i in range(BETWEEN + 1):
            frames.append(draw(learner, line, truth, x, y, adapted, i / BETWEEN))
            milliseconds.append(45 if i < BETWEEN else 60 * HOLD)
    path = Path(__file__).with_suffix(".gif")
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=milliseconds, loop=0, optimize=True)
    print(path, path.stat().st_size // 1024, "KB")


def draw(learner, line, truth, x, y, adapted, share) -> Image.Image:
    """One frame: the points, the curve at this share of the step, the context's numbers as bars."""
    start = learner.start(tasks=1)
    context = start.context + share * (adapted.context - start.context)
    now = adapted.map(lambda value: context)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.9), dpi=100, width_ratios=(3.4, 1), layout="constrained")
    left.plot(line[0, :, 0], truth[0, :, 0], color=TRUTH, linewidth=1.5, linestyle=(0, (4, 3)), label="true curve")
    left.plot(line[0, :, 0], learner.predict(line, now)[0, :, 0], color=CURVE, linewidth=2.6, label="prediction")
    left.plot(x[0, :, 0], y[0, :, 0], "o", color=INK, markersize=6, label="ten known points")
    left.set(
        xlim=(-5, 5), ylim=(-5.6, 5.6), title="before the step" if share == 0 else "one gradient step on 5 numbers"
    )
    left.legend(loc="lower left", ncols=3, frameon=False, fontsize=8, handlelength=1.6, columnspacing=1.2)
    right.bar(range(1, 1 + context.shape[1]), context[0], color=BAR, width=0.62)
    right.axhline(0, color=INK, linewidth=0.8)
    most = float(adapted.context.abs().max()) * 1.15
    right.set(ylim=(-most, most), title="the context φ", xticks=range(1, 1 + context.shape[1]), yticks=[])
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
        axes.tick_params(labelsize=8)
    right.spines[["left", "bottom"]].set_visible(False)
    with io.BytesIO() as file:
        figure.savefig(file, format="png")
        plt.close(figure)
        return Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


if __name__ == "__main__":
    main()
