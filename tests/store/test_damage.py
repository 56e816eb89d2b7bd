"""A damaged store gives back what was put or an error, never other numbers; stores without checksums get them."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch

import cavia

OLD = Path(__file__).parents[1] / "fixtures" / "v0_1" / "table.store"
VERSION = "0123456789abcdef"
IDS = {"int": [3 * n - 7 for n in range(30)], "str": [f"task {n}" for n in range(30)]}


def filled(path, ids, contexts):
    with cavia.ContextStore(path, VERSION) as store:
        store.put(ids, contexts)
    return path


def change(path, order, *values):
    """Change the file with SQLite itself."""
    connection = sqlite3.connect(path)
    connection.execute(order, values)
    connection.commit()
    connection.close()


def mutated(content, chance):
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        changed[chance.choice([place for place, byte in enumerate(content) if byte])] = chance.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_changed_byte_never_gives_another_context(kind, seed, tmp_path):
    chance, contexts, ids = random.Random(seed), torch.randn(30, 4), IDS[kind]
    truth = dict(zip(ids, contexts.tolist(), strict=True))
    content = filled(tmp_path / "whole", ids, contexts).read_bytes()
    refused = 0
    for turn in range(40):
        path = tmp_path / f"changed {turn}"
        path.write_bytes(mutated(content, chance))
        try:
            with cavia.ContextStore(path) as store:
                stored = dict(zip(ids, store.get(ids).context.tolist(), strict=True))
                for part, some in store.batches():
                    stored |= dict(zip(part, some.tolist(), strict=True))
                assert store.version == VERSION
                assert store.ids == ids
                assert stored == truth
        except cavia.CaviaError as error:
            refused += "\n" not in str(error)
    assert refused > 10


@pytest.mark.parametrize("kind", IDS)
def test_a_damaged_row_is_named_and_can_be_put_again(kind, tmp_path):
    ids, contexts = IDS[kind], torch.randn(30, 4)
    path = filled(tmp_path / "store", ids, contexts)
    change(path, "UPDATE contexts SET context = ? WHERE id = ?", b"\1" * 16, ids[4])
    change(path, "UPDATE contexts SET context = 'text' WHERE id = ?", ids[6])
    with cavia.ContextStore(path) as store:
        for read in (
            lambda: store.get([ids[3], ids[4]]),
            lambda: store.nearest([ids[4]]),
            lambda: store.nearest(contexts[:1]),
            lambda: list(store.batches()),
            lambda: store.ids,
            lambda: store.export(tmp_path / "tasks.parquet"),
        ):
            with pytest.raises(
                cavia.CaviaError, match=f"differ from those put, .*{ids[4]}.*; adapt .* again and put"
            ) as raised:
                read()
            assert "\n" not in str(raised.value)
        assert torch.equal(store.get(ids[:4]).context, contexts[:4])
        store.put([ids[4]], contexts[4:5])
        store.delete([ids[6]])
        assert torch.equal(store.get(ids[:6]).context, contexts[:6])
        assert len(store.ids) == 29
    assert not (tmp_path / "tasks.parquet").exists()


def test_a_context_under_another_id_is_refused(tmp_path):
    path = filled(tmp_path / "store", ["a", "b"], torch.randn(2, 4))
    change(path, "UPDATE contexts SET id = 'c' WHERE id = 'a'")
    with cavia.ContextStore(path) as store, pytest.raises(cavia.CaviaError, match=r"of 1 ids .*, 'c';"):
        store.get(["c"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", 0), ("size", "4"), ("size", None), ("dtype", "float33"), ("kind", "bytes"), ("kind", 3), ("version", 7)],
)
def test_what_is_said_of_all_contexts_is_checked(name, value, tmp_path):
    path = filled(tmp_path / "store", ["a"], torch.randn(1, 4))
    change(path, "UPDATE about SET value = ? WHERE name = ?", value, name)
    with pytest.raises(cavia.CaviaError, match="is damaged"), cavia.ContextStore(path) as store:
        store.get(["a"])


def test_contexts_of_another_type_or_version_are_not_taken_for_these(tmp_path):
    path = filled(tmp_path / "store", ["a"], torch.randn(1, 4).double())
    change(path, "UPDATE about SET value = 'float32' WHERE name = 'dtype'")
    change(path, "UPDATE about SET value = 8 WHERE name = 'size'")
    with cavia.ContextStore(path) as store, pytest.raises(cavia.CaviaError, match="differ from those put"):
        store.get(["a"])
    path = filled(tmp_path / "other", ["a"], torch.randn(1, 4))
    change(path, "UPDATE about SET value = 'fedcba9876543210' WHERE name = 'version'")
    with cavia.ContextStore(path) as store, pytest.raises(cavia.CaviaError, match="differ from those put"):
        store.get(["a"])


def test_an_older_store_is_read_as_it_is_and_gets_checksums_when_it_is_written_to(tmp_path):
    path = Path(shutil.copy(OLD, tmp_path))
    before = path.read_bytes()
    with cavia.ContextStore(path) as store, cavia.ContextStore(path) as other:
        ids = store.ids
        expected = store.get(ids).context
        assert path.read_bytes() == before
        assert len(other) == len(ids)
        store.put(["new"], expected[:1])
        for reader in (store, other):  # one of them had seen the file without checksums
            assert torch.equal(reader.get([*ids, "new"]).context, torch.cat([expected, expected[:1]]))
    change(path, "UPDATE contexts SET context = zeroblob(length(context)) WHERE id = ?", ids[0])
    with cavia.ContextStore(path) as store, pytest.raises(cavia.CaviaError, match=f"differ from those put, '{ids[0]}'"):
        store.get(ids)


def test_an_upgrade_that_fails_leaves_the_older_store(tmp_path, monkeypatch):
    path = Path(shutil.copy(OLD, tmp_path))

    def fails(connection, form):
        raise KeyboardInterrupt

    with cavia.ContextStore(path) as store:
        ids = store.ids
        with monkeypatch.context() as patch:
            patch.setattr("cavia.store.database_rows.set_format", fails)
            with pytest.raises(KeyboardInterrupt):
                store.delete(ids[:1])
        assert store.ids == ids
        store.delete(ids[:1])
        assert store.ids == ids[1:]


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e300, 1.0])
def test_nearest_in_float64_at_any_scale(scale, tmp_path):
    torch.manual_seed(0)
    contexts = torch.randn(50, 3, dtype=torch.float64)
    expected = torch.cdist(contexts, contexts, compute_mode="donot_use_mm_for_euclid_dist")
    with cavia.ContextStore(tmp_path / "store", VERSION) as store:
        store.put(range(50), contexts * scale)
        for place, neighbours in enumerate(store.nearest(range(50), 4)):
            order = expected[place].argsort()[1:5].tolist()
            assert [one for one, _ in neighbours] == order
            assert [distance / scale for _, distance in neighbours] == pytest.approx(expected[place, order].tolist())


def test_nearest_in_float64_has_all_its_digits(tmp_path):
    contexts = 100 + 1e-10 * torch.tensor([[0.0], [5.0], [2.0], [9.0]], dtype=torch.float64)
    with cavia.ContextStore(tmp_path / "store", VERSION) as store:
        store.put(range(4), contexts)
        assert [one for one, _ in store.nearest([0], 3)[0]] == [2, 1, 3]


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_file_that_is_not_there_any_more_takes_no_contexts(how, tmp_path):
    path = tmp_path / "contexts"
    with cavia.ContextStore(path, VERSION) as store:
        store.put(["a"], torch.ones(1, 2))
        path.unlink() if how == "deleted" else path.rename(tmp_path / "elsewhere")
        if how == "replaced":
            filled(path, ["z"], torch.zeros(1, 2))
        for call in (lambda: store.put(["b"], torch.ones(1, 2)), lambda: store.get(["a"]), lambda: len(store)):
            with pytest.raises(cavia.CaviaError, match="contexts was moved, deleted or replaced since it was opened"):
                call()


def test_a_store_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cavia.ContextStore("contexts", VERSION) as store:
        (tmp_path / "inner").mkdir()
        monkeypatch.chdir(tmp_path / "inner")
        store.put(["a"], torch.ones(1, 2))
        assert store.ids == ["a"]
