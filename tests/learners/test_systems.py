"""Every system that the paper names learns, in seconds, to do better than chance."""

import pytest
import torch

import cavia

GLYPHS = {
    "Relation Networks": lambda: cavia.RelationNets(network(0), ways=3),
    "VERSA": lambda: cavia.VERSA(network(0), ways=3, samples=4),
    "LEO": lambda: cavia.LEO(network(0), ways=3, inner_steps=2, latent=16),
    "MAML++": lambda: cavia.MAMLPlusPlus(network(3), "cross_entropy", 0.1, 2, anneal=50),
    "iMAML": lambda: cavia.ImplicitMAML(network(3), "cross_entropy", 0.1, 5),
    "MT-net": lambda: cavia.MTNet(network(3), "cross_entropy", 0.1, 2),
    "Meta-LSTM": lambda: cavia.MetaLSTM(network(3), "cross_entropy", 0.1, 2, hidden=4),
}


def network(ways):
    return cavia.ConvNet(ways, 8, image=16, channels=1, context=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", GLYPHS)
def test_every_new_method_learns_glyphs(name):
    torch.manual_seed(0)
    drawn = cavia.synthetic_glyphs(30, 5, 10, drawings=8, size=16)
    family = cavia.Episodes(drawn, ways=3, shots=2, queries=4, channels=1)
    learner = GLYPHS[name]()
    cavia.fit(learner, family, 60, tasks_per_batch=4, outer=cavia.Adam(lr=3e-3), progress=False,
              validation=cavia.Validation(0))  # fmt: skip
    evaluation = cavia.evaluate(learner, family, tasks=60)
    assert evaluation.mean[-1] - evaluation.interval[-1] > 1 / 3, str(evaluation)
