"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import numpy
import pytest
import torch

import cavia
from tests.graphs import as_traced

MODULES = [name for _, name, _ in pkgutil.walk_packages(cavia.__path__, "cavia.") if "__main__" not in name]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if name == "cavia.envs.single_task":
        pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')
    module = importlib.import_module(name)
    names = {"torch": torch, "np": numpy, **{key: getattr(cavia, key) for key in cavia.__all__}, **vars(module)}
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    with as_traced():
        for test in finder.find(module, name, globs=names):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
