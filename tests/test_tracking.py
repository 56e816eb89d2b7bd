"""The guide to tracking: its blocks for packages that are not installed here run with stand-ins of the same calls."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "tracking.md").read_text()


class Log:
    """What a tracker was told."""

    def __init__(self):
        self.numbers, self.artifacts, self.params = {}, [], {}

    def log(self, numbers, step=None):
        assert all(isinstance(value, float) for value in numbers.values())
        self.numbers[step] = numbers

    def keep(self, path, type=None):
        assert Path(path).is_file()
        self.artifacts.append(path)


def mlflow(told):
    module = ModuleType("mlflow")

    @contextmanager
    def start_run(run_id=None, experiment_id=None, run_name=None):
        yield

    module.start_run, module.log_artifact = start_run, lambda local_path, artifact_path=None: told.keep(local_path)
    module.log_metrics = lambda metrics, step=None: told.log(metrics, step)
    module.log_params = lambda params: told.params.update(params)
    return module


def wandb(told):
    module = ModuleType("wandb")

    class Run:
        def log(self, data, step=None):
            told.log(data, step)

        def log_artifact(self, artifact_or_path, name=None, type=None):
            told.keep(artifact_or_path, type)

    @contextmanager
    def init(project=None, config=None):
        told.params.update(config)
        yield Run()

    module.init = init
    return module


@pytest.mark.slow
@pytest.mark.parametrize("make", [mlflow, wandb])
def test_a_tracker_is_told_of_the_run(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = Log()
    monkeypatch.setitem(sys.modules, make.__name__, make(told))
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL).group(1), names)
    block = next(text for text in re.findall(r"```text\n(.*?)```", GUIDE, flags=re.DOTALL) if make.__name__ in text)
    exec(block, names)
    assert told.params["iterations"] == 200
    assert told.artifacts == ["sine.cavia"]
    assert set(told.numbers[200]) == {"loss", "validation"}
