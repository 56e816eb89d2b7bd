"""What is left uncompiled unless its owner asks for it, and why."""

import pytest
import torch

import cavia
from cavia.compiler.obstacles import TESTED, drawback, obstacle
from cavia.training.eligible import is_worth_compiling


@pytest.fixture
def learner():
    return cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), "mse")


@pytest.fixture
def later_pytorch(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.1+cpu")


def test_our_own_networks_are_compiled_with_the_version_that_is_installed(learner):
    assert torch.__version__.startswith(f"{TESTED}.")
    assert obstacle(learner, learner.loss) is None
    assert is_worth_compiling(learner)


@pytest.mark.slow
@pytest.mark.usefixtures("later_pytorch")
def test_with_another_version_of_pytorch_training_is_not_compiled_unless_asked_for(learner, monkeypatch):
    with pytest.warns(
        UserWarning, match=r"PyTorch 2\.99, .* tested with .* only; Adam\(compile=True\) compiles it"
    ) as said:
        assert not is_worth_compiling(learner)
    assert len(said) == 1

    def asked(*arguments, **options):
        raise RuntimeError("the compiler was asked")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", asked)
    with pytest.raises(RuntimeError, match="the compiler was asked"):
        cavia.fit(learner, cavia.Sine(), 1, outer=cavia.Adam(compile=True), progress=False)


@pytest.mark.usefixtures("later_pytorch")
def test_with_another_version_of_pytorch_a_compiled_learner_runs_as_it_is(learner, monkeypatch):
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", None)  # not to be called
    with pytest.warns(UserWarning, match=r"it runs uncompiled: this is PyTorch 2\.99"):
        service = cavia.compiled(learner)
    x, y = torch.rand(2, 5, 1), torch.rand(2, 5, 1)
    assert torch.equal(service.predict(x, service.adapt(x, y)), learner.predict(x, learner.adapt(x, y)))


def test_convolutions_are_only_slower():
    network = cavia.ConvNet(2, 4, 28, 1, context=2)
    assert "compiled convolutions are slower" in drawback(network)
    assert drawback(network.to("meta")) is None
