"""Contexts that several machines share: services and commands with the URL of one store."""

import csv

import pytest

from cavia.cli import main
from tests.serving.test_routes import asked
from tests.serving.test_rows import ROWS, write_rows
from tests.store.conftest import places, server, url, vectors  # noqa: F401  # fixtures


@pytest.mark.slow
def test_two_services_share_a_store(serving, learner_file, url):  # noqa: F811
    with (
        serving(learner_file / "curves.cavia", url) as one,
        serving(learner_file / "curves.cavia", url) as other,
    ):
        _, answer = one.adapt({"ann": asked(3), "🦔/": asked(4, 1)})
        assert other("GET", "/tasks/ann")[1]["context"] == answer["tasks"]["ann"]["context"]
        assert other.predict({"ann": asked(2, y=False)})[0] == 200
        assert [near["id"] for near in other("GET", "/tasks/ann/nearest")[1]["nearest"]] == ["🦔/"]
        assert other("DELETE", "/tasks/%F0%9F%A6%94%2F")[0] == 204
        assert one("GET", "/tasks/%F0%9F%A6%94%2F")[0] == 404
        assert "cavia_tasks 1.0" in one("GET", "/metrics")[1]


@pytest.mark.slow
def test_a_server_that_is_gone_is_said_so(serving, learner_file, url, server):  # noqa: F811
    with serving(learner_file / "curves.cavia", url) as ask:
        ask.adapt({"ann": asked(3)})
        server.stop()
        try:
            for method, path, body in (
                ("POST", "/adapt", {"tasks": {"ann": asked(3)}}),
                ("POST", "/predict", {"tasks": {"ann": asked(3, y=False)}}),
                ("GET", "/tasks/ann", None),
                ("DELETE", "/tasks/ann", None),
                ("GET", "/metrics", None),
            ):
                status, answer = ask(method, path, body)
                assert status == 503, (path, answer)
                assert "secret-word" not in answer["detail"]
        finally:
            server.start()
        assert ask.adapt({"ann": asked(3)})[0] == 200


@pytest.mark.slow
def test_the_commands_take_a_url(table_models, url, tmp_path, capsys):  # noqa: F811
    write_rows(tmp_path / "rows.csv")
    model, table, out = (
        str(path) for path in (table_models / "number.cavia", tmp_path / "rows.csv", tmp_path / "out.csv")
    )
    assert main(["adapt", model, table, "--out", url]) == 0
    assert main(["predict", model, table, "--contexts", url, "--out", out]) == 0
    said = capsys.readouterr()
    assert "3 tasks adapted" in said.out
    assert "secret-word" not in said.out + said.err
    with (tmp_path / "out.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(ROWS)
