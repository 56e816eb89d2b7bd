"""The store gives back what was put, finds the nearest, and refuses what does not belong there."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import cavia
from cavia.cli import main

VERSION = "0123456789abcdef"


@pytest.fixture
def store(path):
    with cavia.ContextStore(path, VERSION) as store:
        yield store


def cavia_command(*arguments):
    return main([str(argument) for argument in arguments])


def new_learner(seed=0, inner_lr=1.0):
    torch.manual_seed(seed)
    return cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=3), "mse", inner_lr=inner_lr)


@pytest.mark.parametrize(
    "ids", [[5, -1, 2**63 - 1, -(2**63)], ["b", "a", "", "ü\0 '\""], np.arange(4), torch.arange(4)]
)
def test_what_was_put_comes_back_in_the_order_asked_for(store, path, ids):
    contexts = torch.randn(4, 3)
    store.put(ids, contexts)
    store.close()
    names = list(ids) if isinstance(ids, list) else ids.tolist()
    with cavia.ContextStore(path) as again:
        assert torch.equal(again.get(ids).context, contexts)
        assert torch.equal(again.get(names[::-1] + names[:1]).context, contexts[[3, 2, 1, 0, 0]])
        assert sorted(again.ids) == sorted(names)
        assert len(again) == 4
        assert names[0] in again
        assert again.version == VERSION


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_type_comes_back_to_the_bit(store, dtype):
    contexts = torch.randn(20, 7).to(dtype)
    store.put(range(20), contexts[:, :].t().contiguous().t())  # not contiguous
    assert torch.equal(store.get(range(20)).context, contexts)
    assert store.get([]).context.shape == (0, 7)
    assert store.nearest([3], 2)[0][0][1] == pytest.approx(
        min((contexts.double() - contexts[3].double()).norm(dim=1).sort().values[1:].tolist())
    )


@pytest.mark.parametrize("kind", ["file", "server"])
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete", "batches"]), st.sets(st.integers(0, 12), min_size=1)), max_size=12
    ),
    st.booleans(),
)
def test_the_store_behaves_like_a_dictionary(places, kind, actions, strings):
    expected = {}
    number = 0.0
    with cavia.ContextStore(places(kind), VERSION) as store:
        for action, chosen in actions:
            ids = [f"task {one}" if strings else one for one in chosen]
            if action == "put":
                number += 1
                store.put(ids, torch.full((len(ids), 2), number))
                expected.update(dict.fromkeys(ids, number))
            elif action == "delete" and set(ids) <= set(expected):
                store.delete(ids)
                for one in ids:
                    del expected[one]
            elif action == "delete":
                with pytest.raises(cavia.CaviaError, match="are not in"):
                    store.delete(ids)
            else:
                stored = {}
                for part, contexts in store.batches(3):
                    stored.update(zip(part, contexts[:, 1].tolist(), strict=True))
                assert stored == expected
            assert len(store) == len(expected)
            assert set(store.ids) == set(expected)
        assert (
            store.get(list(expected)).context[:, 0].tolist() == list(expected.values()) if expected else not store.ids
        )


def test_missing_ids_are_named_and_counted(store):
    with pytest.raises(cavia.CaviaError, match=r"1 of 1 ids are not in .*: 7"):
        store.get([7])
    store.put(["a"], torch.zeros(1, 2))
    with pytest.raises(cavia.CaviaError, match=r"5 of 6 ids are not in .*: 'b', 'c', 'd' and 2 more"):
        store.get(list("abcdef"))
    assert "b" not in store
    assert 1 not in store


@pytest.mark.parametrize(
    ("ids", "contexts", "message"),
    [
        (["a"], torch.full((1, 2), torch.nan), "1 of 1 contexts are not finite, those of 'a'"),
        (["a", "b"], torch.zeros(1, 2), r"\[2, 2\], one row per id; got torch.float32 \[1, 2\]"),
        (["a"], torch.zeros(2), r"got torch.float32 \[2\]"),
        (["a"], torch.zeros(1, 0), r"\[1, C\]"),
        (["a"], torch.zeros(1, 2, dtype=torch.int64), "floating-point"),
        (["a"], [[1.0]], "got list"),
        (["a", "a"], torch.zeros(2, 2), "id 'a' is given twice"),
        (["a", 1], torch.zeros(2, 2), "all int or all str"),
        ([True], torch.zeros(1, 2), "int or str, got True of type bool"),
        ([1.5], torch.zeros(1, 2), "int or str, got 1.5"),
        ([2**63], torch.zeros(1, 2), "64 bits, got 9223372036854775808"),
        (["\ud800"], torch.zeros(1, 2), "valid Unicode"),
        ("a", torch.zeros(1, 2), r"got the single id 'a'; give \['a'\]"),
        ({"a"}, torch.zeros(1, 2), r"which has no order; give sorted\(ids\)"),
        (None, torch.zeros(1, 2), "ids must be a list of int or str, got None"),
        (torch.tensor(1), torch.zeros(1, 2), "ids must be a list of int or str"),
        (["a"], torch.zeros(1, 2, device="meta"), "floating-point"),
        (["a"], torch.zeros(()), r"got torch.float32 \[\]"),
        (
            ["a"],
            cavia.Adapted({"context": torch.zeros(1, 2), "layer.weight": torch.zeros(1, 2)}),
            "'context', 'layer.weight'",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is(store, ids, contexts, message):
    with pytest.raises(cavia.CaviaError, match=message) as raised:
        store.put(ids, contexts)
    assert "\n" not in str(raised.value)
    assert len(store) == 0


def test_size_type_and_kind_of_ids_are_settled_by_the_first_put(store):
    store.put(["a"], torch.zeros(1, 2))
    for ids, contexts, message in (
        (["b"], torch.zeros(1, 3), "contexts of 2 numbers, got 3"),
        (["b"], torch.zeros(1, 2).double(), r"float32, got torch.float64; contexts.to\(torch.float32\)"),
        ([1], torch.zeros(1, 2), "ids of .* are str, got int"),
    ):
        with pytest.raises(cavia.CaviaError, match=message):
            store.put(ids, contexts)
    with pytest.raises(cavia.CaviaError, match="are str, got int"):
        store.get([1])
    assert store.ids == ["a"]


def test_empty_calls_do_nothing(store):
    store.put([], torch.zeros(0, 2))
    store.delete([])
    assert (len(store), store.ids, list(store.batches()), store.nearest(torch.zeros(2, 3))) == (0, [], [], [[], []])
    assert store.get([]).context.shape[0] == 0


@pytest.mark.parametrize("strings", [False, True])
def test_nearest_is_exact_over_many_blocks(store, monkeypatch, strings):
    monkeypatch.setattr("cavia.store.backend.BLOCK", 64)
    monkeypatch.setattr("cavia.store.nearest.QUERIES", 7)
    contexts = 100 + torch.randn(500, 6)  # far from 0: where a product in float32 would lose digits
    ids = [f"task {n}" if strings else 3 * n - 700 for n in torch.randperm(500).tolist()]
    store.put(ids, contexts)
    queries = 100 + torch.randn(20, 6)
    expected = torch.cdist(queries.double(), contexts.double(), compute_mode="donot_use_mm_for_euclid_dist").sort(1)
    for place, neighbours in enumerate(store.nearest(queries, 9)):
        assert [one for one, _ in neighbours] == [ids[index] for index in expected.indices[place, :9]]
        assert [distance for _, distance in neighbours] == pytest.approx(expected.values[place, :9].tolist())
    for asked, neighbours in zip(ids[:20], store.nearest(ids[:20], 3), strict=True):
        assert len(neighbours) == 3
        assert asked not in [one for one, _ in neighbours]
    assert len(store.nearest(queries[:1], 1000)[0]) == 500
    assert len(store.nearest(ids[:1], 1000)[0]) == 499


def test_nearest_refuses_what_it_cannot_compare(store):
    store.put(["a"], torch.zeros(1, 2))
    for tasks, k, message in (
        (torch.zeros(1, 3), 1, r"must be \[Q, 2\], got \[1, 3\]"),
        (torch.full((1, 2), torch.inf), 1, "not finite"),
        (["b"], 1, "1 of 1 ids are not in"),
        (["a"], 0, "k must be at least 1, got 0"),
    ):
        with pytest.raises(cavia.CaviaError, match=message):
            store.nearest(tasks, k)
    assert store.nearest(["a"], 5) == [[]]


def test_a_store_may_be_changed_while_its_batches_are_read(store):
    store.put(range(10), torch.zeros(10, 2))
    seen = []
    for ids, contexts in store.batches(3):
        store.put(ids, contexts + 1)
        store.put([one + 100 for one in ids if one < 10], contexts[: sum(one < 10 for one in ids)])
        seen += ids
    assert sorted(seen) == [*range(10), *range(100, 110)]


def test_threads_share_a_store(store):
    def work(number):
        for turn in range(5):
            store.put([100 * number + turn], torch.full((1, 2), float(number)))
            store.get([100 * number + turn])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) == 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ids", [[3, 1, 2], ["c", "a", "b"]])
def test_export_holds_everything(store, tmp_path, ids, dtype):
    parquet = pytest.importorskip("pyarrow.parquet")
    contexts = torch.randn(3, 4).to(dtype)
    store.put(ids, contexts)
    store.export(tmp_path / "out" / "tasks.parquet")
    table = parquet.read_table(tmp_path / "out" / "tasks.parquet")
    assert table.schema.metadata[b"cavia_model_version"].decode() == VERSION
    exported = dict(zip(table["id"].to_pylist(), table["context"].to_pylist(), strict=True))
    assert list(exported) == store.ids
    assert torch.equal(torch.tensor([exported[one] for one in ids]), contexts.float())
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["tasks.parquet"]


def test_export_without_pyarrow_names_the_extra(store, tmp_path, monkeypatch):
    store.put([1], torch.zeros(1, 2))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(cavia.CaviaError, match=r"pip install 'cavia-torch\[tables\]'"):
        store.export(tmp_path / "tasks.parquet")


def test_export_of_nothing_or_to_nowhere_is_refused(store, tmp_path):
    with pytest.raises(cavia.CaviaError, match="nothing to export"):
        store.export(tmp_path / "tasks.parquet")
    pytest.importorskip("pyarrow")
    store.put([1], torch.zeros(1, 2))
    (tmp_path / "file").touch()
    with pytest.raises(cavia.CaviaError, match="cannot write"):
        store.export(tmp_path / "file" / "tasks.parquet")


def test_a_version_outlives_saving_and_not_training(tmp_path):
    learner = new_learner()
    learner.save(tmp_path / "learner.cavia")
    before = learner.version
    assert cavia.load(tmp_path / "learner.cavia").version == before == new_learner().version
    assert len({before, new_learner(seed=1).version, new_learner(inner_lr=0.5).version, learner.double().version}) == 4
    learner = new_learner()
    cavia.fit(learner, cavia.Sine(), iterations=1, tasks_per_batch=2, progress=False)
    assert learner.version != before


def test_a_store_belongs_to_one_version(path):
    learner = new_learner()
    with cavia.ContextStore(path, learner) as store:
        fast = learner.adapt(torch.rand(2, 5, 1), torch.rand(2, 5, 1))
        store.put(["a", "b"], fast)
        assert torch.equal(store.get(["a", "b"]).context, fast["context"])
        with pytest.raises(cavia.CaviaError, match=r"\[1, 3\]"):
            store.put(["c"], torch.zeros(1, 4))
        old = learner.version
        with torch.no_grad():
            next(learner.parameters()).add_(1)
        with pytest.raises(cavia.CaviaError, match=f"trained since.* version {learner.version}.* {old}"):
            store.put(["c"], torch.zeros(1, 3))
    with pytest.raises(cavia.CaviaError, match=f"holds contexts of model version {old}, not of {learner.version}"):
        cavia.ContextStore(path, learner)
    with cavia.ContextStore(path, new_learner()) as store:
        assert store.ids == ["a", "b"]


def test_an_export_does_not_replace_a_file_of_another_kind(store, tmp_path):
    store.put(["a"], torch.zeros(1, 2))
    table = tmp_path / "data.csv"
    table.write_text("user,y\na,1\n")
    with pytest.raises(cavia.CaviaError, match=r"exported to a \.parquet file, got .*data\.csv"):
        store.export(table)
    assert table.read_text() == "user,y\na,1\n"


def test_the_command_line_looks_into_a_store(store, path, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    assert cavia_command("store", path) == 0
    assert "0 contexts of model version" in capsys.readouterr().out
    store.put([1, -2, 30], torch.tensor([[0.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))
    assert cavia_command("store", path, "--nearest=-2", "--k", 1, "--export", tmp_path / "tasks.parquet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"3 contexts of 2 numbers (torch.float32) of model version {VERSION}"
    assert lines[1] == "1  1"
    assert (tmp_path / "tasks.parquet").exists()
    missing = f"{path}_missing" if isinstance(path, str) else tmp_path / "missing"
    assert cavia_command("store", missing) == 2
    assert "there is no store" in capsys.readouterr().err
