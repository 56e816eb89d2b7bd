"""The nearest contexts are the same from memory, from the disk and by pgvector, whatever others put meanwhile."""

import pytest
import torch

import cavia
from cavia.store.matrix import Matrix

VERSION = "0123456789abcdef"


def truth(contexts, query, k):
    """Places of the k nearest to query [C], and how far they are."""
    apart = (contexts.double() - query.double()).norm(dim=1).sort(stable=True)
    return apart.indices[:k].tolist(), apart.values[:k].tolist()


def refuse(*_):
    raise AssertionError("all contexts are read")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_second_search_reads_nothing_but_the_winners(tmp_path, monkeypatch, dtype):
    contexts = (3 + torch.randn(300, 4, dtype=torch.float64)).to(dtype)
    with cavia.ContextStore(tmp_path / "store", VERSION) as store:
        store.put(range(300), contexts)
        store.nearest([0])
        monkeypatch.setattr("cavia.store.contexts.ContextStore._scan", refuse)
        for place, neighbours in enumerate(store.nearest(range(300), 5)):
            expected, apart = truth(contexts, contexts[place], 6)
            assert {one for one, _ in neighbours} == set(expected) - {place}
            assert [distance for _, distance in neighbours] == pytest.approx(apart[1:])


@pytest.mark.parametrize("kind", ["file", "server", "pgvector"])
def test_a_search_sees_what_this_and_other_stores_changed(places, kind):
    path = places(kind)
    with cavia.ContextStore(path, VERSION) as store, cavia.ContextStore(path, VERSION) as other:
        query = torch.zeros(1, 2)

        def nearest():
            return [one.nearest(query, 1)[0][0][0] for one in (store, other)]

        store.put([1], torch.tensor([[0.0, 9.0]]))
        assert nearest() == [1, 1]
        other.put([2], torch.tensor([[0.0, 8.0]]))
        assert nearest() == [2, 2]
        store.put([3, 4], torch.tensor([[0.0, 6.0], [0.0, 7.0]]))
        assert nearest() == [3, 3]
        other.put([1], torch.tensor([[0.0, 1.0]]))
        assert nearest() == [1, 1]
        store.delete([1])
        assert nearest() == [3, 3]


@pytest.mark.parametrize("kind", ["file", "pgvector"])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_float32_at_any_scale_and_with_outliers(places, kind, scale):
    contexts = scale * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    contexts[7] *= 1e6
    with cavia.ContextStore(places(kind), VERSION) as store:
        store.put(range(60), contexts)
        for place, neighbours in enumerate(store.nearest(range(60), 4)):
            expected, apart = truth(contexts / scale, contexts[place] / scale, 5)
            assert {one for one, _ in neighbours} == set(expected) - {place}
            assert [distance / scale for _, distance in neighbours] == pytest.approx(apart[1:], rel=1e-5)


@pytest.mark.parametrize("kind", ["file", "pgvector"])
def test_differences_that_float32_products_lose_are_seen(places, kind):
    contexts = 1000 + torch.tensor([[0.0], [5.0], [2.0], [9.0], [-1e6]]) * 2.0**-13
    with cavia.ContextStore(places(kind), VERSION) as store:
        store.put(range(5), contexts)
        assert [one for one, _ in store.nearest([0], 3)[0]] == [2, 1, 3]
        query = 1000 + torch.tensor([[3.6]], dtype=torch.float64) * 2.0**-13  # no number of float32
        assert [one for one, _ in store.nearest(query, 3)[0]] == [1, 2, 0]


def test_equal_contexts_and_too_many_of_them_are_found(tmp_path):
    with cavia.ContextStore(tmp_path / "store", VERSION) as store:
        store.put(range(3000), torch.ones(3000, 2))
        assert [distance for _, distance in store.nearest([5], 7)[0]] == [0.0] * 7


def test_a_store_that_is_too_large_for_memory_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("cavia.store.matrix.MOST_BYTES", 100)
    monkeypatch.setattr(Matrix, "nearest", refuse)
    with cavia.ContextStore(tmp_path / "store", VERSION) as store:
        store.put(range(50), torch.arange(50.0)[:, None])
        assert [one for one, _ in store.nearest([0], 3)[0]] == [1, 2, 3]


def test_pgvector_compares_where_it_is_there(places, monkeypatch):
    monkeypatch.setattr("cavia.store.contexts.ContextStore._scan", refuse)
    contexts = torch.randn(600, 5)  # enough for COPY
    with cavia.ContextStore(places("pgvector"), VERSION) as store:
        store.put([f"task {n}" for n in range(600)], contexts)
        store.put(["task 3"], contexts[3:4] + 1)
        contexts[3] += 1
        expected, apart = truth(contexts, contexts[3], 5)
        neighbours = store.nearest(contexts[3:4], 5)[0]
        assert [one for one, _ in neighbours] == [f"task {place}" for place in expected]
        assert [distance for _, distance in neighbours] == pytest.approx(apart)
