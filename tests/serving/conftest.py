"""Services in this process: a learner or a table's model, its store, and a client that asks it."""

import csv
import random
from contextlib import contextmanager

import pytest
import torch

import cavia
from cavia.cli import main

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")


class Ask:
    """A client; every answer is a status and JSON."""

    def __init__(self, client, service):
        self.client, self.service = client, service

    def __call__(self, method, path, body=None, **headers):
        given = {"json": body} if body is not None and not isinstance(body, bytes) else {}
        if isinstance(body, bytes):
            given, headers = {"content": body}, {"content-type": "application/json", **headers}
        response = self.client.request(method, path, headers=headers, **given)
        is_json = response.headers.get("content-type") == "application/json"
        return response.status_code, response.json() if is_json else response.text

    def adapt(self, tasks, **options):
        return self("POST", "/adapt", {"tasks": tasks, **options})

    def predict(self, tasks, **options):
        return self("POST", "/predict", {"tasks": tasks, **options})


@pytest.fixture(scope="session")
def learner_file(tmp_path_factory):
    """CAVIA on curves, with weights as they are drawn, and labels for four classes in "classes"."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    cavia.CAVIA(cavia.MLP(2, 1, (16, 16), context=3), "mse", inner_lr=0.2, inner_steps=2).save(folder / "curves.cavia")
    cavia.CAVIA(cavia.MLP(2, 4, (16,), context=3), "cross_entropy", inner_lr=0.2).save(folder / "classes.cavia")
    cavia.MAML(cavia.MLP(2, 1, (16,), context=0), "mse", inner_lr=0.1).save(folder / "maml.cavia")
    return folder


@pytest.fixture(scope="session")
def table_models(tmp_path_factory):
    """What `cavia fit` makes of a table of numbers, "number.cavia", and of one of classes, "class.cavia"."""
    folder = tmp_path_factory.mktemp("tables")
    numbers = random.Random(0)
    for name in ("number", "class"):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["user_id", "age", "kind", "y"])
            for user in range(40):
                for _ in range(6):
                    age, y = numbers.uniform(20, 60), numbers.gauss(user % 12, 1)
                    answer = f"{y:.3f}" if name == "number" else ("high" if y > 6 else "low")
                    writer.writerow([f"u{user}", f"{age:.1f}", numbers.choice(["home", "work"]), answer])
        small = ["--iterations", "2", "--hidden", "8", "--context", "2", "--support", "3"]
        order = ["fit", str(folder / f"{name}.csv"), "--task", "user_id", "--target", "y", *small]
        assert main([*order, "--out", str(folder / f"{name}.cavia")]) == 0
    return folder


@pytest.fixture
def serving(tmp_path):
    """serving(model, store=…, token=…, seconds=…, limits=…, compiles=…): a context manager that gives an `Ask`."""
    from fastapi.testclient import TestClient

    from cavia.serving.app import make_app
    from cavia.serving.limits import Limits
    from cavia.serving.opening import opened

    @contextmanager
    def serve(model, store=None, token=None, seconds=0.002, limits=None, compiles=False):
        store = tmp_path / "contexts" if store is None else store
        with opened(model, store, limits or Limits(), compiles) as (service, reader):
            app = make_app(service, reader, token, seconds)
            with TestClient(app, base_url="http://localhost") as client:
                yield Ask(client, service)

    return serve
