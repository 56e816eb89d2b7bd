"""Every route, and answers that are the library's."""

import json
import re

import pytest
import torch

import cavia

EXACT = {"rtol": 1e-5, "atol": 1e-6}


def points(n, seed=0, inputs=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, inputs, generator=generator), torch.randn(n, 1, generator=generator)


def asked(n, seed=0, y=True):
    x, targets = points(n, seed)
    return {"x": x.tolist(), **({"y": targets.tolist()} if y else {})}


@pytest.fixture
def ask(serving, learner_file):
    with serving(learner_file / "curves.cavia") as ask:
        yield ask


@pytest.fixture
def learner(learner_file):
    return cavia.load(learner_file / "curves.cavia")


def test_contexts_and_predictions_are_the_librarys(ask, learner):
    sizes = {"ann": 3, "bob": 1, "cleo": 20}
    status, answer = ask.adapt({name: asked(n, n) for name, n in sizes.items()})
    assert status == 200
    status, predicted = ask.predict({name: asked(5, 100 + n, y=False) for name, n in sizes.items()})
    assert status == 200
    for name, n in sizes.items():
        x, y = points(n, n)
        adapted = learner.adapt(x[None], y[None])
        context = torch.tensor(answer["tasks"][name]["context"])
        torch.testing.assert_close(context, adapted.context[0], **EXACT)
        there = torch.tensor(predicted["tasks"][name]["prediction"])
        torch.testing.assert_close(there, learner.predict(points(5, 100 + n)[0][None], adapted)[0], **EXACT)
        assert ask("GET", f"/tasks/{name}") == (200, {"id": name, "context": answer["tasks"][name]["context"]})


def test_a_context_goes_on_or_begins_again(ask, learner):
    (x, y), (more_x, more_y) = points(4, 1), points(6, 2)
    ask.adapt({"ann": asked(4, 1)})
    adapted = learner.adapt(x[None], y[None])
    _, answer = ask.adapt({"ann": asked(6, 2)}, mode="continue")
    further = learner.adapt(more_x[None], more_y[None], start=adapted)
    torch.testing.assert_close(torch.tensor(answer["tasks"]["ann"]["context"]), further.context[0], **EXACT)
    _, answer = ask.adapt({"ann": asked(6, 2)})
    anew = learner.adapt(more_x[None], more_y[None])
    torch.testing.assert_close(torch.tensor(answer["tasks"]["ann"]["context"]), anew.context[0], **EXACT)


def test_the_store_has_what_was_acknowledged(ask, tmp_path, learner):
    _, answer = ask.adapt({"ann": asked(4)})
    with cavia.ContextStore(tmp_path / "contexts", learner) as store:
        assert store.get(["ann"]).context[0].tolist() == answer["tasks"]["ann"]["context"]


def test_nearest_tasks(ask, tmp_path):
    ask.adapt({f"t{i}": asked(5, i) for i in range(8)})
    status, answer = ask("GET", "/tasks/t3/nearest?k=4")
    with cavia.ContextStore(tmp_path / "contexts") as store:
        wanted = [{"id": one, "distance": distance} for one, distance in store.nearest(["t3"], 4)[0]]
    assert (status, answer) == (200, {"id": "t3", "nearest": wanted})
    assert len(ask("GET", "/tasks/t3/nearest")[1]["nearest"]) == 5


def test_a_deleted_task_is_gone(ask):
    ask.adapt({"ann": asked(3)})
    assert ask("DELETE", "/tasks/ann") == (204, "")
    for method, path in (("GET", "/tasks/ann"), ("DELETE", "/tasks/ann"), ("GET", "/tasks/ann/nearest")):
        assert ask(method, path) == (404, {"detail": "there is no task 'ann'"})
    status, answer = ask.predict({"ann": asked(1, y=False)})
    assert (status, answer["detail"]) == (422, "'ann' has no context to predict by; adapt first")


def test_tasks_without_a_context_can_be_predicted_from_the_start(ask, learner):
    ask.adapt({"ann": asked(3)})
    x, _ = points(4, 9)
    task = {"x": x.tolist()}
    _, answer = ask.predict({"ann": task, "zoe": task}, unknown="start")
    start = learner.adapt(x[None], torch.zeros(1, 4, 1), steps=0)
    there = torch.tensor(answer["tasks"]["zoe"]["prediction"])
    torch.testing.assert_close(there, learner.predict(x[None], start)[0], **EXACT)
    assert answer["tasks"]["ann"] == ask.predict({"ann": task})[1]["tasks"]["ann"]


@pytest.mark.parametrize("name", ["a/b", "a/nearest", "50%", "a%2Fb", "ä ö?#&=", "🦔", "..", ".", "a\nb", " "])
def test_ids_may_hold_any_sign(ask, name):
    from urllib.parse import quote

    _, answer = ask.adapt({name: asked(2)})
    quoted = quote(name, safe="").replace(".", "%2E")
    context = answer["tasks"][name]["context"]
    assert ask("GET", f"/tasks/{quoted}") == (200, {"id": name, "context": context})
    assert ask("GET", f"/tasks/{quoted}/nearest") == (200, {"id": name, "nearest": []})
    assert ask("DELETE", f"/tasks/{quoted}")[0] == 204


def test_a_store_of_numbers_has_numbers_as_ids(serving, learner_file, learner, tmp_path):
    with cavia.ContextStore(tmp_path / "numbers", learner) as store:
        store.put([7], torch.ones(1, 3))
    with serving(learner_file / "curves.cavia", tmp_path / "numbers") as ask:
        assert ask("GET", "/tasks/7")[1]["context"] == [1, 1, 1]
        assert ask.adapt({"-8": asked(2)})[0] == 200
        assert ask("GET", "/tasks/07")[1]["detail"] == "the ids of this store are whole numbers, got '07'"
        assert ask.adapt({"ann": asked(2)})[0] == 422
    with cavia.ContextStore(tmp_path / "numbers") as store:
        assert store.ids == [-8, 7]


def test_a_classifier_gives_probabilities(serving, learner_file):
    learner = cavia.load(learner_file / "classes.cavia")
    x, _ = points(6)
    y = torch.tensor([0, 1, 2, 3, 3, 0])
    with serving(learner_file / "classes.cavia") as ask:
        assert ask.adapt({"ann": {"x": x.tolist(), "y": y.tolist()}})[0] == 200
        _, answer = ask.predict({"ann": {"x": x.tolist()}})
        assert ask("GET", "/model")[1]["classes"] == 4
    logits = learner.predict(x[None], learner.adapt(x[None], y[None]))[0]
    assert answer["tasks"]["ann"]["prediction"] == logits.argmax(1).tolist()
    torch.testing.assert_close(torch.tensor(answer["tasks"]["ann"]["probabilities"]), logits.softmax(1), **EXACT)


def test_the_model_says_what_it_takes(ask, learner):
    status, answer = ask("GET", "/model")
    assert status == 200
    assert answer["version"] == learner.version
    assert (answer["learner"], answer["model"], answer["takes"]) == ("CAVIA", "MLP", "tasks")
    assert (answer["inputs"], answer["outputs"], answer["context"]) == (2, 1, 3)


def test_health_and_metrics(ask):
    ask.adapt({"ann": asked(3)})
    ask.adapt({"ann": asked(3)}, mode="back")
    assert ask("GET", "/health") == (200, {"status": "ok", "compiling": False})
    status, text = ask("GET", "/metrics")
    assert status == 200
    for line in (
        'cavia_requests_total{route="POST /adapt",status="200"} 1.0',
        'cavia_requests_total{route="POST /adapt",status="422"} 1.0',
        'cavia_request_seconds_count{route="POST /adapt"} 2.0',
        "cavia_batch_requests_count 2.0",
        "cavia_tasks 1.0",
    ):
        assert line in text.splitlines()
    for task in ("bob", "cleo"):
        ask("GET", f"/tasks/{task}")
        ask("BREW", f"/{task}")
    text = ask("GET", "/metrics")[1]
    assert 'route="GET /tasks/{id}",status="404"} 2.0' in text
    assert 'route="other",status="404"} 2.0' in text


def test_the_description_and_its_page_need_nothing_from_outside(ask):
    status, page = ask("GET", "/docs")
    assert status == 200
    assert not re.search(r"(https?:)?//[a-z]", page.replace("// ", ""))
    paths = ask("GET", "/openapi.json")[1]["paths"]
    assert set(paths) == {"/adapt", "/predict", "/tasks/{id}", "/tasks/{id}/nearest", "/model", "/health", "/metrics"}
    body = paths["/adapt"]["post"]["requestBody"]["content"]["application/json"]
    json.dumps(body["schema"])
    assert body["example"]["tasks"]["ann"]["x"]


def test_the_page_of_the_demo_shows_a_model_that_fits(serving, learner_file, tmp_path):
    cavia.CAVIA(cavia.MLP(1, 1, (8,), context=2), "mse").save(tmp_path / "curve.cavia")
    with serving(tmp_path / "curve.cavia") as ask:
        status, page = ask("GET", "/")
        assert (status, "<html" in page) == (200, True)
        assert "curves" in ask("GET", "/api/about")[1]
        status, answer = ask("POST", "/api/curves", {"points": [{"x": 1.0, "y": 2.0}], "steps": 2})
        assert status == 200, answer
        assert ask("GET", "/api/about", host="evil.example")[0] == 403
    for model, token in (("curves.cavia", None), ("curves.cavia", "0123456789abcdef0123")):
        with serving(learner_file / model, tmp_path / "others", token) as ask:
            answer = ask.client.get("/", follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (307, "docs")
