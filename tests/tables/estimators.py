"""Small tables and settings for estimators."""

import numpy as np
import pandas as pd

QUICK = {"hidden": (8,), "context": 2, "support": 4, "iterations": 3, "tasks_per_batch": 4}


def rows_of(users, seed=0, rows=8):
    """One user per name: y is a line of its own."""
    numbers = np.random.default_rng(seed)
    parts = []
    for user in users:
        x, kind = numbers.uniform(-1, 1, rows), numbers.choice(["home", "work"], rows)
        y = numbers.normal(0, 2) + numbers.normal() * x + (kind == "work")
        parts.append(pd.DataFrame({"user": user, "x": x, "kind": kind, "y": y}))
    return pd.concat(parts, ignore_index=True)


TABLE, NEW = rows_of([f"u{i}" for i in range(8)]), rows_of(["ann", "bob"], seed=1)
X, Y = TABLE.drop(columns="y"), TABLE["y"]
NEW_X, NEW_Y = NEW.drop(columns="y"), NEW["y"]
