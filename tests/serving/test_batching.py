"""Requests that come together are answered together, each as if it were alone."""

import asyncio
import threading

import httpx
import pytest
import torch

import cavia
from cavia.serving.batching import Batcher
from cavia.serving.computing import Calls, _size, _together
from cavia.serving.limits import Limits
from cavia.serving.points import Task
from cavia.serving.service import Request
from tests.serving.test_routes import EXACT, asked, points


def at_once(ask, requests):
    """The answers to (path, body), all sent at the same time."""

    async def send():
        transport = httpx.ASGITransport(ask.client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await asyncio.gather(*(client.post(path, json=body) for path, body in requests))
        return [(one.status_code, one.json()) for one in response]

    return asyncio.run(send())


@pytest.fixture
def counted(monkeypatch):
    """How many contexts each `put` had."""
    puts, put = [], cavia.ContextStore.put

    def counting(self, ids, contexts):
        puts.append(len(ids))
        put(self, ids, contexts)

    monkeypatch.setattr(cavia.ContextStore, "put", counting)
    return puts


@pytest.mark.slow
def test_requests_that_come_together_are_one_call_and_one_commit(serving, learner_file, counted):
    learner = cavia.load(learner_file / "curves.cavia")
    with serving(learner_file / "curves.cavia", seconds=0.05) as ask:
        sizes = [1 + i % 15 for i in range(40)]
        replies = at_once(ask, [("/adapt", {"tasks": {f"t{i}": asked(n, i)}}) for i, n in enumerate(sizes)])
        assert counted == [40]
        assert ask.service.calls.count == {"adapt": 1, "predict": 0}
        queries = [("/predict", {"tasks": {f"t{i}": asked(n, 99 + i, y=False)}}) for i, n in enumerate(sizes)]
        predicted = at_once(ask, queries)
        assert ask.service.calls.count == {"adapt": 1, "predict": 1}
    for i, n in enumerate(sizes):
        x, y = points(n, i)
        adapted = learner.adapt(x[None], y[None])
        context = torch.tensor(replies[i][1]["tasks"][f"t{i}"]["context"])
        torch.testing.assert_close(context, adapted.context[0], **EXACT)
        there = torch.tensor(predicted[i][1]["tasks"][f"t{i}"]["prediction"])
        torch.testing.assert_close(there, learner.predict(points(n, 99 + i)[0][None], adapted)[0], **EXACT)


def test_one_by_one_is_one_by_one(serving, learner_file, counted):
    with serving(learner_file / "curves.cavia", seconds=0) as ask:
        replies = at_once(ask, [("/adapt", {"tasks": {f"t{i}": asked(3, i)}}) for i in range(5)])
    assert [status for status, _ in replies] == [200] * 5
    assert counted == [1] * 5


def test_one_requests_fault_is_its_own(serving, learner_file, counted):
    wrong = {"x": [[1, 2]], "y": [[1, 2]]}
    too_far = {"x": [[0, 1e30]], "y": [[3e38]]}
    bodies = [
        {"tasks": {"a": asked(3)}},
        {"tasks": {"b": wrong}},
        {"tasks": {"c": too_far}},
        {"tasks": {"d": asked(2)}},
    ]
    bodies.append({"tasks": {"e": asked(2)}, "mode": "continue"})
    with serving(learner_file / "curves.cavia", seconds=0.05) as ask:
        replies = at_once(ask, [("/adapt", body) for body in bodies])
        assert [status for status, _ in replies] == [200, 422, 422, 200, 422]
        queries = [("/predict", {"tasks": {name: asked(1, y=False)}}) for name in "abd"]
        assert [status for status, _ in at_once(ask, queries)] == [200, 422, 200]
    assert sum(counted) == 2


def test_requests_for_one_id_take_turns(serving, learner_file):
    """Whatever the order, each goes on from what another left: three steps in all."""
    learner = cavia.load(learner_file / "curves.cavia")
    x, y = points(4)
    with serving(learner_file / "curves.cavia", seconds=0.05) as ask:
        ask.adapt({"ann": asked(4)})
        replies = at_once(ask, [("/adapt", {"tasks": {"ann": asked(4)}, "mode": "continue"})] * 3)
        last = ask("GET", "/tasks/ann")[1]["context"]
    adapted = learner.adapt(x[None], y[None])
    for _, answer in replies:  # equal requests: the order is that of the answers
        adapted = learner.adapt(x[None], y[None], start=adapted)
        context = torch.tensor(answer["tasks"]["ann"]["context"])
        torch.testing.assert_close(context, adapted.context[0], rtol=1e-4, atol=1e-5)
    assert last == replies[-1][1]["tasks"]["ann"]["context"]


def test_the_event_loop_answers_while_the_model_works():
    free = threading.Event()

    def answer(requests):
        assert free.wait(60)
        return [(200, b"")] * len(requests)

    async def look():
        batcher = Batcher(answer, Limits(waiting=3), 0.001)
        first = asyncio.create_task(batcher.submit(Request("adapt")))
        while not batcher.busy:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(batcher.submit(Request("adapt"))) for _ in range(3)]
        await asyncio.sleep(0)
        status, said = await batcher.submit(Request("adapt"))
        assert (status, b"3 requests are waiting already" in said) == (429, True)
        free.set()
        assert [status for status, _ in await asyncio.gather(first, *waiting)] == [200] * 4
        batcher.close()

    asyncio.run(look())


def test_who_waits_too_long_is_refused():
    free = threading.Event()

    def answer(requests):
        assert free.wait(60)
        return [(200, b"")] * len(requests)

    async def look():
        batcher = Batcher(answer, Limits(seconds=0.1), 0)
        asked = [asyncio.create_task(batcher.submit(Request("adapt"))) for _ in range(1900)]
        await asyncio.sleep(0)  # all of them wait by now
        await asyncio.sleep(0.15)
        free.set()
        replies = await asyncio.gather(*asked)
        assert [status for status, _ in replies] == [200] + [429] * 1899
        assert b"waited for more than 0.1 s" in replies[1][1]
        batcher.close()

    asyncio.run(look())


def test_who_is_gone_is_not_waited_for():
    seen = []

    async def look():
        batcher = Batcher(lambda requests: seen.append(len(requests)) or [(200, b"")] * len(requests), Limits(), 0.01)
        gone, stays = (asyncio.create_task(batcher.submit(Request("adapt"))) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays)[0] == 200
        batcher.close()

    asyncio.run(look())
    assert seen == [1]


def test_calls_have_few_sizes():
    assert [_size(sizes) for sizes in ([1], [3, 5], [1] * 9, [200] * 8)] == [(1, 4), (8, 16), (64, 4), (8, 256)]
    parts = list(_together([10] * 70 + [5000, 300]))
    assert [len(part) for part in parts] == [1, 1, 64, 6]
    assert sorted(task for part in parts for task in part) == list(range(72))


@pytest.mark.slow
def test_compiled_calls_are_the_learners(learner_file, compiler):
    learner = cavia.load(learner_file / "curves.cavia")
    calls = Calls(learner, inputs=2)
    tasks = [Task(f"t{i}", x.numpy(), y.numpy()) for i in range(5) for x, y in [points(1 + i, i)]]
    starts = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    plain = calls.adapt(tasks, starts)
    said = calls.predict(tasks, plain)
    assert calls.is_compiling or calls.ready
    calls.compiler.submit(int).result()  # when those before it are done
    assert calls.ready == {("adapt", 8, 16), ("predict", 8, 16)}
    assert not calls.is_compiling
    before = dict(calls.compiled.graphs.plans)
    torch.testing.assert_close(calls.adapt(tasks, starts), plain, **EXACT)
    for one, other in zip(calls.predict(tasks, plain), said, strict=True):
        torch.testing.assert_close(one, other, **EXACT)
    assert dict(calls.compiled.graphs.plans) == before  # nothing was compiled anew
    calls.close()
    for task, start, context in zip(tasks, starts, plain, strict=True):
        begin = cavia.Adapted({"context": start[None]})
        own = learner.adapt(torch.from_numpy(task.x)[None], torch.from_numpy(task.y)[None], start=begin)
        torch.testing.assert_close(context, own.context[0], **EXACT)


def test_a_learner_that_reads_all_points_at_once_does_not_go_on(serving, tmp_path):
    torch.manual_seed(0)
    learner = cavia.CNP(cavia.MLP(2, 1, (8,), context=4), "mse", inputs=2, outputs=1, encoder=(8,))
    learner.save(tmp_path / "cnp.cavia")
    with serving(tmp_path / "cnp.cavia") as ask:
        _, answer = ask.adapt({"ann": asked(5)})
        status, said = ask.adapt({"ann": asked(5)}, mode="continue")
    x, y = points(5)
    torch.testing.assert_close(
        torch.tensor(answer["tasks"]["ann"]["context"]), learner.adapt(x[None], y[None]).context[0], **EXACT
    )
    assert (status, "CNP reads all points of a task at once" in said["detail"]) == (422, True)
