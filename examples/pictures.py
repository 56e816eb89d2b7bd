"""Tell new classes of pictures apart from one picture of each.

The folder has `train`, `val` and `test`, in each a folder for every class, in these the pictures. No class is in two
of the three. Without a folder, letters that are drawn by a program take its place.
"""

import argparse

import torch

import cavia

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", nargs="?", help="the pictures (default: drawn letters)")
parser.add_argument("--ways", type=int, default=5, help="classes to tell apart (default: 5)")
parser.add_argument("--shots", type=int, default=1, help="known pictures of each (default: 1)")
parser.add_argument("--size", type=int, default=28, help="pictures are squashed to size × size (default: 28)")
parser.add_argument("--iterations", type=int, default=1000, help="of training (default: 1000)")
options = parser.parse_args()

torch.manual_seed(0)
images = options.folder or cavia.synthetic_glyphs(size=options.size)
tasks = cavia.Episodes(images, options.ways, options.shots, queries=5, size=options.size)
network = cavia.ConvNet(options.ways, filters=16, image=options.size, context=50, norm="task")
learner = cavia.CAVIA(network, loss="cross_entropy", inner_lr=0.5, inner_steps=2)
outer = cavia.Adam(lr=0.01, cooldown=0.5)
cavia.fit(learner, tasks, options.iterations, outer=outer, tasks_per_batch=8, validation=cavia.Validation(tasks=50))

print(f"accuracy on classes that training never saw (chance is {1 / options.ways:.0%}):")
print(cavia.evaluate(learner, tasks, tasks=100))
learner.save("pictures.cavia")
