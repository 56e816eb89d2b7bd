"""Prototypical and Matching Networks against their equations."""

import pytest
import torch

import cavia


def make(method, **arguments):
    torch.manual_seed(0)
    learner = method(cavia.MLP(2, 5, hidden=(8,), context=0), ways=3, **arguments)
    x, y = torch.randn(4, 6, 2), torch.tensor([0, 1, 2, 2, 1, 2]).expand(4, 6)
    return learner, x, y, torch.randn(4, 7, 2)


def test_prototypes_are_means_and_logits_squared_distances():
    learner, x, y, query = make(cavia.ProtoNets)
    fast = learner.adapt(x, y)
    embedded, queries = learner.embed(x), learner.embed(query)
    for task in range(4):
        prototypes = torch.stack([embedded[task][y[task] == label].mean(0) for label in range(3)])
        torch.testing.assert_close(fast["prototypes"][task], prototypes)
        distances = torch.cdist(queries[task], prototypes).square()
        torch.testing.assert_close(learner.predict(query, fast)[task], -distances, rtol=1e-4, atol=1e-5)


def test_matching_networks_vote_by_cosine():
    learner, x, y, query = make(cavia.MatchingNets, scale=2.0)
    logits = learner.predict(query, learner.adapt(x, y))
    embedded, queries = learner.embed(x), learner.embed(query)
    similarity = torch.cosine_similarity(queries.unsqueeze(2), embedded.unsqueeze(1), dim=-1)
    votes = (2 * similarity).softmax(-1)
    expected = torch.stack([votes[..., y[0] == label].sum(-1) for label in range(3)], -1)
    torch.testing.assert_close(logits.exp(), expected)


def test_with_batch_norm_support_and_query_points_are_normalised_together():
    torch.manual_seed(0)
    network = cavia.ConvNet(ways=0, filters=4, image=16, channels=1, context=0)
    learner = cavia.ProtoNets(network, ways=2)
    x, y = torch.rand(3, 4, 1, 16, 16), torch.tensor([0, 1, 0, 1]).expand(3, 4)
    query = torch.rand(3, 6, 1, 16, 16)
    logits = learner.predict(query, learner.adapt(x, y))
    together = network(torch.cat([x, query], 1), torch.zeros(3, 0)).flatten(2)
    for task in range(3):
        prototypes = torch.stack([together[task, :4][y[task] == label].mean(0) for label in range(2)])
        distances = torch.cdist(together[task, 4:], prototypes).square()
        torch.testing.assert_close(logits[task], -distances, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", [cavia.ProtoNets, cavia.MatchingNets])
def test_padding_counts_for_nothing(method):
    learner, x, y, query = make(method)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 4:] = False
    short = learner.predict(query, learner.adapt(x[:, :4], y[:, :4]))
    torch.testing.assert_close(learner.predict(query, learner.adapt(x, y, mask)), short)


@pytest.mark.parametrize("method", [cavia.ProtoNets, cavia.MatchingNets])
def test_without_steps_all_classes_are_alike(method):
    learner, x, y, query = make(method)
    logits = learner.predict(query, learner.adapt(x, y, steps=0))
    torch.testing.assert_close(logits, logits[..., :1].expand_as(logits))


@pytest.mark.parametrize("method", [cavia.ProtoNets, cavia.MatchingNets])
def test_learning_and_saving(method, tmp_path):
    learner, x, y, query = make(method)
    batch = cavia.TaskBatch(x, y, x + 0.01, y)
    optimiser = torch.optim.Adam(learner.parameters(), 0.01)
    losses = []
    for _ in range(30):
        loss = learner(batch).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    learner.save(tmp_path / "m.cavia")
    again = cavia.load(tmp_path / "m.cavia")
    assert torch.equal(again.predict(query, again.adapt(x, y)), learner.predict(query, learner.adapt(x, y)))


def test_misuse_is_named():
    learner, x, y, query = make(cavia.ProtoNets)
    with pytest.raises(cavia.CaviaError, match="needs whole-number labels"):
        learner.adapt(x, y.float())
    with pytest.raises(cavia.CaviaError, match=r"labels must be from 0 to 2 \(ways=3\), got 0 to 3"):
        learner.adapt(x, y + (y == 2))
    with pytest.raises(cavia.CaviaError, match=r"x .* holds 2 tasks but what adapted 4"):
        learner.predict(query[:2], learner.adapt(x, y))
    with pytest.raises(cavia.CaviaError, match="ways must be at least 2, got 1"):
        cavia.ProtoNets(cavia.MLP(2, 5, context=0), ways=1)
