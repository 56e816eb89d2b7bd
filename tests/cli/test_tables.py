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
    output = capsys.readouterr()
    return code, output.out, output.err


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


def test_categories_that_training_never_saw_are_counted(fitted, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("user_id,x,colour,y\nu100,1,r,2\nu100,1,pink,2\n")
    said = run(capsys, "adapt", fitted / "model.cavia", tmp_path / "t.csv", "--out", tmp_path / "contexts")[1]
    assert "(categories that training never saw: 'colour' in 1 rows)" in said


def test_values_that_training_always_had_are_counted(fitted, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("user_id,x,colour,y\nu100,1,r,2\nu100,1,,2\n")
    said = run(capsys, "adapt", fitted / "model.cavia", tmp_path / "t.csv", "--out", tmp_path / "contexts")[1]
    assert "(no value, as never in training: 'colour' in 1 rows)" in said


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


def test_fit_says_how_it_read_each_column(tmp_path, capsys):
    rows = [f"{firm},2024-0{i + 1}-0{i + 1},0{i}1,{i}.5,{i % 2},{i * 2}" for firm in "abcdef" for i in range(1, 6)]
    (tmp_path / "t.csv").write_text("firm,day,zip,x,won,y\n" + "\n".join(rows))
    order = ["fit", tmp_path / "t.csv", "--task", "firm", "--iterations", 2, "--out", tmp_path / "m.cavia"]
    code, said, _ = run(capsys, *order, "--target", "won", "--number", "zip")
    assert code == 0
    assert said.splitlines()[1:8] == [
        "  firm  task              6 of them in 30 rows",
        "  day   date              2024-02-02 to 2024-06-06",
        "  zip   number            11 to 51",
        "  x     number            1.5 to 5.5",
        "  y     number            2 to 10",
        "  won   target, category  2 categories: 0, 1; 0 and 1 are classes, --regression makes them numbers",
        "6 tasks (4 train, 1 val, 1 test), 30 rows, 25 inputs",
    ]
    assert "accuracy on 1 unseen tasks, 4 points to adapt on:" in said  # and not 10
    assert "nan" not in said  # of one task there is no interval
    assert "root mean squared error of won" in run(capsys, *order, "--target", "won", "--regression")[1]
    assert "  y     target, category  5 categories" in run(capsys, *order, "--target", "y", "--classification")[1]
    assert "  x     category        5 categories" in run(capsys, *order, "--target", "y", "--category", "x")[1]


def test_several_targets_are_predicted(tmp_path, capsys):
    with write_table(tmp_path / "table.csv", range(20), gaps=False).open() as file:
        header, *rows = csv.reader(file)
    rows = [[f"={user}", *rest, str(100 - float(rest[-1]))] for user, *rest in rows]
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*header, "z"], *rows])
    model, contexts, out = (tmp_path / name for name in ("m.cavia", "contexts", "out.csv"))
    code, said, _ = run(
        capsys, "fit", tmp_path / "table.csv", "--task", "user_id", "--target", "y,z", *TINY, "--out", model
    )
    assert code == 0
    assert "root mean squared error of y on" in said
    assert "root mean squared error of z on" in said
    for _ in range(2):  # the second time from what the first wrote
        assert run(capsys, "adapt", model, tmp_path / "table.csv", "--out", contexts)[0] == 0
        assert run(capsys, "predict", model, tmp_path / "table.csv", "--contexts", contexts, "--out", out)[0] == 0
        table = cavia.Tasks.from_table(out, "user_id", "y", inputs="x")
        assert table.names[0] == "=u000"
        with out.open() as file:
            lines = list(csv.DictReader(file))
        assert lines[0]["user_id"] == "'=u000"
        assert 90 < sum(float(line["prediction_z"]) for line in lines) / len(lines) < 110
        left = [[value for name, value in line.items() if "prediction" not in name] for line in lines]
        with (tmp_path / "table.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*header, "z"], *left])
    assert run(capsys, "adapt", model, tmp_path / "table.csv", "--out", contexts)[1].endswith("holds 20 contexts\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hidden", "99999999999"], "a fit with --hidden 99999999999, --context 8, --support 10"),
        (["--context", "100000"], "a fit with --hidden 64,64, --context 100000, --support 10"),
        (["--context", "1000000000"], "--context 1000000000"),
        (["--hidden", ",".join(["100000"] * 3)], "GB of memory, this machine has"),
        (["--support", "1000000000000"], "--support 1000000000000"),
        (["--tasks-per-batch", "1000000000000"], "--tasks-per-batch 1000000000000"),
        (["--inner-steps", "1000000000000"], "--inner-steps: must be at most 1000000, got '1000000000000'"),
        (["--support", "9" * 30], "argument --support: must be at most 9223372036854775807"),
        (["--seed", "9" * 30], "must be at most"),
        (["--context", "9" * 5000], "must be"),
        (["--lr", "nan"], "--lr: must be a number above 0, got 'nan'"),
        (["--inner-lr", "-1"], "--inner-lr: must be a number above 0"),
        (["--out", "."], "--out . is a folder"),
        (["--out", "new.csv/model.cavia"], "new.csv is not a writable folder"),
        (["--out", "loop"], "out 'loop': Too many levels"),
        (["--out", "n" * 300], "File name too long"),
        (["--out", ""], "argument --out: must be the name of a file or folder, got ''"),
        (["--context=--"], "argument --context: must be a whole number of at least 1, got '--'"),
        (["--inputs", "x,,y"], "must be names separated by commas, got 'x,,y'"),
        (["--task", "u" * 5000], "has no column 'uuu"),
        (["--target", "y,y"], "target names the column 'y' twice"),
        (["--target", "y,colour"], "several targets must all be numbers, 'colour' holds classes; fit it alone"),
        (["--category", "x", "--number", "x"], "column 'x' cannot be a number and a category"),
        (["--classification", "--regression"], "not allowed with argument"),
        (["--regression", "--target", "colour"], "line 2, column 'colour': "),
        (["--task", "x"], "line 3, column 'x' (and 59 more): no value; every row must name its task"),
    ],
)
def test_a_fit_that_cannot_be_is_refused_before_it_begins(arguments, message, fitted, capsys, monkeypatch):
    monkeypatch.chdir(fitted)
    monkeypatch.setattr("cavia.tables.fitting.fit", None)  # nothing is trained
    if not (fitted / "loop").is_symlink():
        (fitted / "loop").symlink_to("loop")
    before = sorted(path.name for path in fitted.iterdir())
    assert main(["fit", "table.csv", "--task", "user_id", "--target", "y", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in fitted.iterdir()) == before


def test_the_command_line_speaks_of_its_flags(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("u,x,y\na,1,1.5\na,2,2.5\nb,3,3.5\nc,4,4x\nd,5,5.5\n")
    order = ["fit", tmp_path / "t.csv", "--task", "u", "--target", "y", "--out", tmp_path / "m.cavia"]
    assert "line 5, column 'y': '4x' is not a number" in (said := run(capsys, *order)[2])
    assert "with --category y\n" in said
    assert "leave them out with --too-small drop\n" in run(capsys, *order, "--target", "x", "--category", "y")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nowhere.csv", "--task", "u", "--target", "y"], "there is no file nowhere.csv"),
        (["fit", "table.csv", "--task", "user", "--target", "y"], "has no column 'user'; the nearest are 'user_id'"),
        (["fit", "table.csv", "--task", "user_id"], "required: --target"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--context", "0"], "at least 1, got '0'"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--inputs", "x,z"], "has no column 'z'"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--out", "table.csv"], "is also an input"),
        (["fit", "table.csv", "--task", "user_id", "--target", "y", "--order", "sorted"], "did you mean 'ordered'"),
        (["adapt", "model.cavia", "short.csv"], "short.csv has no column 'y'; it has 'user_id', 'x'"),
        (["adapt", "model.cavia", "bare.csv"], "1 tasks in bare.csv have no row with a value in 'y' to adapt on: 'b'"),
        (["adapt", "model.cavia", "new.csv", "--out", "a", "--store", "b"], "--store b and --out a are the same flag"),
        (["adapt", "other.cavia", "table.csv"], "other.cavia was not trained on a table"),
        (["predict", "model.cavia", "table.csv", "--contexts", "model.cavia"], "model.cavia"),
        (["predict", "model.cavia", "table.csv", "--contexts", "contexts", "--out", "a.png"], "call it .csv"),
        (["adapt", "model.cavia", "table.csv", "--out", "new.parquet"], "would hold another format than .parquet"),
        (["predict", "again.cavia", "table.csv", "--contexts", "contexts"], "version"),
        (["predict", "model.cavia", "table.csv", "--contexts", "contexts", "--out", "a.parquet"], "call it .csv"),
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
    before = {path.name: path.read_bytes() for path in fitted.iterdir() if path.is_file()}
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in fitted.iterdir() if path.is_file()} == before
