"""The commands for one's own table: fit, adapt, predict, embed; misuse is one line and leaves nothing behind."""

import csv
import hashlib
import random

import pytest
import torch

import cavia
from cavia.cli import main
from cavia.tables.model import load_table_model

TINY = ["--iterations", "60", "--hidden", "16", "--context", "2", "--support", "4", "--lr", "0.02"]


def write_table(path, users, rows=(3, 12), kind="number", gaps=True):
    """Lines with each user's own height, and a column that has nothing to do with it."""
    generator = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user_id", "x", "colour", "y"])
        for user in users:
            height = 3 * random.Random(user).gauss(0, 1)
            for i in range(generator.randint(*rows)):
                x = generator.uniform(-1, 1)
                y = height + x
                answer = f"{y:.4f}" if kind == "number" else ("high" if y > 0 else "low")
                writer.writerow([f"u{user:03}", "" if gaps and i == 1 else x, generator.choice("rgb"), answer])
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "table.csv", range(60))
    write_table(folder / "new.csv", range(100, 112))
    order = ["fit", str(folder / "table.csv"), "--task", "user_id", "--target", "y", *TINY]
    assert main([*order, "--out", str(folder / "model.cavia")]) == 0
    assert main(["adapt", str(folder / "model.cavia"), str(folder / "new.csv"), "--out", str(folder / "contexts")]) == 0
    return folder


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_predictions_follow_each_users_context(fitted, tmp_path, capsys):
    out = tmp_path / "predictions.csv"
    code, said, _ = run(
        capsys, "predict", fitted / "model.cavia", fitted / "new.csv", "--contexts", fitted / "contexts", "--out", out
    )
    assert code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert f"{len(rows)} rows predicted" in said
    with (fitted / "new.csv").open() as file:
        before = list(csv.DictReader(file))
    assert [{name: row[name] for name in before[0]} for row in rows] == before  # its own columns, in their order
    errors = torch.tensor([float(row["y"]) - float(row["prediction"]) for row in rows])
    assert errors.square().mean() < 0.6 * torch.tensor([float(row["y"]) for row in rows]).var()


def test_a_row_is_predicted_as_the_library_does_it(fitted):
    model = load_table_model(fitted / "model.cavia")
    names, fast, left_out = model.adapt(fitted / "new.csv")
    assert left_out == 0
    with cavia.ContextStore(fitted / "contexts", model.learner) as store:
        assert torch.equal(store.get(names).context, fast["context"])
        table, predictions, _ = model.predict(fitted / "new.csv", store)
    rows = [i for i, name in enumerate(table["user_id"]) if name == names[3]]
    x = model.encoding.encode_inputs(table)[rows].unsqueeze(0)
    y = model.encoding.encode_targets(table)[0][rows].unsqueeze(0)
    alone = model.learner.predict(x, model.learner.adapt(x, y))[0]
    decoded = model.encoding.decode(alone)["y"]
    assert [predictions["y"][i] for i in rows] == pytest.approx(decoded, rel=1e-4, abs=1e-5)


def test_adapting_hashes_a_model_for_its_checksum_and_its_version(fitted, tmp_path, capsys, monkeypatch):
    hashed, sha256 = [], hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda *arguments: hashed.append(arguments) or sha256(*arguments))
    assert run(capsys, "adapt", fitted / "model.cavia", fitted / "new.csv", "--out", tmp_path / "contexts")[0] == 0
    assert len(hashed) == 2


def test_tasks_without_a_context_are_refused_or_predicted_unadapted(fitted, tmp_path, capsys):
    write_table(tmp_path / "more.csv", [100, 300, 301])
    order = ["predict", fitted / "model.cavia", tmp_path / "more.csv", "--contexts", fitted / "contexts"]
    code, _, error = run(capsys, *order, "--out", tmp_path / "out.csv")
    assert code == 2
    assert "2 of 3 tasks" in error
    assert "'u300', 'u301'" in error
    assert not (tmp_path / "out.csv").exists()
    code, said, _ = run(capsys, *order, "--out", tmp_path / "out.csv", "--unknown", "start")
    assert code == 0
    assert "of tasks without a context" in said


def test_classes_are_predicted_by_name(tmp_path, capsys):
    write_table(tmp_path / "table.csv", range(40), kind="class", gaps=False)
    model, contexts, out = (tmp_path / name for name in ("m.cavia", "contexts", "out.csv"))
    code, said, _ = run(
        capsys, "fit", tmp_path / "table.csv", "--task", "user_id", "--target", "y", *TINY, "--out", model
    )
    assert code == 0
    assert "accuracy on 6 unseen tasks" in said
    assert run(capsys, "adapt", model, tmp_path / "table.csv", "--out", contexts)[0] == 0
    assert run(capsys, "predict", model, tmp_path / "table.csv", "--contexts", contexts, "--out", out)[0] == 0
    with out.open() as file:
        assert {row["prediction"] for row in csv.DictReader(file)} == {"high", "low"}


def test_embed_draws_the_contexts(fitted, tmp_path, capsys):
    out = tmp_path / "embedding.png"
    for colour in ("x", "colour"):
        order = ["embed", fitted / "model.cavia", fitted / "new.csv", "--colour", colour, "--out", out]
        code, said, _ = run(capsys, *order)
        assert code == 0
        assert "of the variance" in said
        assert out.read_bytes().startswith(b"\x89PNG")
        lines = out.with_suffix(".csv").read_text().splitlines()
        assert lines[0] == f"user_id,first,second,{colour}"
        assert len(lines) == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nowhere.csv", "--task", "u", "--target", "y"], "there is no file nowhere.csv"),
        (["fit", "table.csv", "--task", "user", "--target", "y"], "has no column 'user'; the nearest are 'user_id'"),
        (["fit", "table.csv", "--task", "user_id"], "required: --target"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--context", "0"], "at least 1, got '0'"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--inputs", "x,z"], "has no column 'z'"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--out", "table.csv"], "is also read"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--order", "sorted"], "did you mean 'ordered'"),
        (["adapt", "model.cavia", "short.csv"], "short.csv has no column 'y'; it has 'user_id', 'x'"),
        (["adapt", "model.cavia", "bare.csv"], "1 tasks in bare.csv have no row with a value in 'y' to adapt on: 'b'"),
        (["adapt", "other.cavia", "table.csv"], "other.cavia was not trained on a table"),
        (["predict", "model.cavia", "table.csv", "--contexts", "model.cavia"], "model.cavia"),
        (["predict", "again.cavia", "table.csv", "--contexts", "contexts"], "version"),
        (["embed", "model.cavia", "new.csv", "--colour", "size"], "has no column 'size'"),
    ],
)
def test_misuse_is_one_line_and_leaves_nothing(arguments, message, fitted, capsys, monkeypatch):
    monkeypatch.chdir(fitted)
    if not (fitted / "other.cavia").exists():
        cavia.CAVIA(cavia.MLP(1, 1), "mse").save("other.cavia")
        model = load_table_model("model.cavia")
        with torch.no_grad():
            next(model.learner.parameters()).add_(1)
        model.save("again.cavia")
        (fitted / "short.csv").write_text("user_id,x,colour\na,1,r\n")
        (fitted / "bare.csv").write_text("user_id,x,colour,y\na,1,r,2\nb,1,r,\n")
    before = {path.name: path.read_bytes() for path in fitted.iterdir()}
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before
