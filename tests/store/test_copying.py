"""`cavia store copy` moves a store from a file to a server and back; misuse is one line."""

import pytest
import torch

import cavia
from cavia.cli import main

VERSION = "0123456789abcdef"


@pytest.mark.parametrize("kinds", [("file", "file"), ("file", "server"), ("server", "pgvector"), ("pgvector", "file")])
@pytest.mark.parametrize("ids", [[3, -1, 20], ["b", "ü\0", "a"]])
def test_all_contexts_are_copied_once_or_twice(places, kinds, ids, monkeypatch, capsys):
    monkeypatch.setattr("cavia.store.copying.BLOCK", 2)
    source, target = map(places, kinds)
    contexts = torch.randn(3, 4, dtype=torch.bfloat16)
    with cavia.ContextStore(source, VERSION) as store:
        store.put(ids, contexts)
        expected = store.ids
    for turn in range(2):
        assert main(["store", "copy", str(source), str(target)]) == 0
        said = capsys.readouterr().out
        assert said.startswith("3 contexts copied to ")
        assert "secret-word" not in said
        with cavia.ContextStore(target) as store:
            assert store.version == VERSION
            assert torch.equal(store.get(ids).context, contexts)
            assert store.ids == expected
            if not turn:
                store.put(ids[:1], contexts[:1] + 1)  # the next copy sets it right


def test_misuse_is_one_line_and_changes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, version in (("a", VERSION), ("b", "another version")):
        with cavia.ContextStore(name, version) as store:
            store.put([1], torch.zeros(1, 2))
    for words, message in (
        (["a", "b"], "looks into one store, got 'b' beside 'a'; to copy one: cavia store copy FROM TO"),
        (["copy", "a"], "takes two stores, FROM and TO, got 1"),
        (["copy", "a", "b", "c"], "takes two stores, FROM and TO, got 3"),
        (["copy", "a", "c", "--nearest", "1"], "takes neither --nearest nor --export"),
        (["copy", "missing", "c"], "there is no store missing"),
        (["copy", "a", "b"], f"holds contexts of model version another version, not of {VERSION}"),
        (["copy", "a", "./a"], "cannot be copied into itself"),
        (["copy", "mysql://ann:secret-word@host/db", "c"], "a file or a postgresql:// URL"),
        (["copy"], "there is no store copy"),
    ):
        assert main(["store", *words]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
        assert "secret-word" not in said
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]
    with cavia.ContextStore("copy", VERSION) as store:  # a file of that name is a store like any other
        store.put([1], torch.zeros(1, 2))
    assert main(["store", "copy"]) == 0


def test_a_store_is_not_exported_onto_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with cavia.ContextStore("a", VERSION) as store:
        store.put([1], torch.ones(1, 2))
        for name in ("a", "./a", "a-wal"):
            with pytest.raises(cavia.CaviaError, match="is the store a itself; choose another name"):
                store.export(name)
    (tmp_path / "link").symlink_to("a")
    assert main(["store", "link", "--export", "a"]) == 2
    assert "a is the store link itself" in capsys.readouterr().err
    with cavia.ContextStore("a") as store:
        assert torch.equal(store.get([1]).context, torch.ones(1, 2))
