"""`cavia serve` under load: batches against one by one, and how long a request takes.

    python benchmarks/serving.py [--seconds 10] [--rounds 3] [--out results/benchmarks]

The published model "sine" with a durable store in a file. Servers run on one core, the load comes from this process on
another: 64 connections, each with one request at a time, 20,000 ids, 1 to 50 points. Both servers run all the time and
are loaded in turns. "Offered" sends at a fixed rate instead, half of it /adapt and half /predict, and measures from the
moment at which a request was due. The CPU time of a request is the server's, of all its threads; other jobs on the
machine lengthen it little. Some answers are compared with the library's.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.commit import this_commit
from interleaved import publish
from steps import machine

MODEL, CONNECTIONS, IDS, MOST_POINTS = "sine", 64, 20_000, 50
MODES = {"batched": 2, "one by one": 0}  # → --batch-ms
READY = 900  # seconds that a server has to compile in
COMPARED = 200


@dataclass
class Load:
    """What requests there are, and what became of them."""

    requests: list[bytes]
    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def result(self, elapsed: float) -> dict[str, float]:
        ordered = sorted(self.seconds)
        p50, p99 = (1e3 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
        rate = len(ordered) / elapsed
        return {"per_second": round(rate, 1), "p50_ms": round(p50, 2), "p99_ms": round(p99, 2), "failed": self.failed}


class Client(asyncio.Protocol):
    """One connection with one request at a time; it reads no more of an answer than it must."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.buffer.find(b"content-length: ", 0, end) + 16
        length = int(self.buffer[at : self.buffer.find(b"\r\n", at)])
        if len(self.buffer) < end + 4 + length:
            return
        received, self.buffer = bytes(self.buffer), bytearray()
        if self.answer and not self.answer.done():
            self.answer.set_result(received)


async def connections(port: int) -> list[Client]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Client, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]


async def closed(port: int, load: Load, seconds: float) -> dict[str, float]:
    """As many requests as the server answers, one at a time on each connection."""
    clients, numbers = await connections(port), random.Random(0)
    begun = time.perf_counter()

    async def work(client: Client) -> None:
        while time.perf_counter() - begun < seconds:
            sent = time.perf_counter()
            reply = await client.ask(numbers.choice(load.requests))
            load.seconds.append(time.perf_counter() - sent)
            load.failed += not reply.startswith(b"HTTP/1.1 200")

    await asyncio.gather(*map(work, clients))
    elapsed = time.perf_counter() - begun
    for client in clients:
        client.transport.close()
    return load.result(elapsed)


async def offered(port: int, load: Load, seconds: float, rate: float) -> dict[str, float]:
    """So many requests a second, at times that do not wait for answers."""
    free: asyncio.Queue[Client] = asyncio.Queue()
    clients, numbers = await connections(port), random.Random(1)
    for client in clients:
        free.put_nowait(client)
    begun, tasks = time.perf_counter(), set()

    async def send(due: float) -> None:
        client = await free.get()
        reply = await client.ask(numbers.choice(load.requests))
        load.seconds.append(time.perf_counter() - due)
        load.failed += not reply.startswith(b"HTTP/1.1 200")
        free.put_nowait(client)

    due = begun
    while due < begun + seconds:
        due += numbers.expovariate(rate)
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(send(due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - begun
    for client in clients:
        client.transport.close()
    return {"offered": rate, **load.result(elapsed)}


def task(number: int, targets: bool) -> dict[str, Any]:
    """Points of a sine curve that the number decides."""
    numbers = random.Random(number)
    x = [[round(numbers.uniform(-5, 5), 4)] for _ in range(numbers.randint(1, MOST_POINTS))]
    curve = torch.sin(torch.tensor(x) + numbers.uniform(0, 3)) * numbers.uniform(0.1, 5)
    return {"x": x, **({"y": curve.tolist()} if targets else {})}


def request(route: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    header = f"POST /{route} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
    return header.encode() + f"{len(content)}\r\n\r\n".encode() + content


def post(port: int, route: str, body: Any) -> Any:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/{route}", json.dumps(body).encode())
    asked.add_header("content-type", "application/json")
    with urllib.request.urlopen(asked, timeout=60) as response:
        return json.load(response)


@contextmanager
def server(folder: Path, batch_ms: int, core: int) -> Iterator[tuple[int, int]]:
    """Port and process id of a server on one core whose calls are compiled."""
    order = [sys.executable, "-m", "cavia", "serve", MODEL, "--store", str(folder / f"{batch_ms}.store")]
    order += ["--port", "0", "--batch-ms", str(batch_ms)]
    with subprocess.Popen(
        order, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    ) as running:  # fmt: skip
        try:
            assert running.stdout
            port = int([running.stdout.readline() for _ in range(2)][1].split(":")[2].split(",")[0])
            for _ in range(READY):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as response:
                    if not json.load(response)["compiling"]:
                        break
                time.sleep(1)
            yield port, running.pid
        finally:
            running.terminate()


def prepare(port: int) -> dict[str, Load]:
    """Requests of every kind; every id has a context."""
    names = [f"user {number}" for number in range(IDS)]
    tasks = {name: task(i, targets=True) for i, name in enumerate(names)}
    for start in range(0, len(names), 100):
        post(port, "adapt", {"tasks": {name: tasks[name] for name in names[start : start + 100]}})
    adapt = [request("adapt", {"tasks": {name: points}}) for name, points in tasks.items()]
    predict = [request("predict", {"tasks": {name: task(i, targets=False)}}) for i, name in enumerate(names)]
    return {"adapt": Load(adapt), "predict": Load(predict), "offered": Load(adapt + predict)}


def compare(port: int) -> float:
    """The largest difference between a number of the server's and the library's."""
    learner, worst = cavia.pretrained(MODEL), 0.0
    tasks = {f"compared {i}": task(i, targets=True) for i in range(COMPARED)}
    contexts = post(port, "adapt", {"tasks": tasks})["tasks"]
    queries = {name: {"x": points["x"]} for name, points in tasks.items()}
    predictions = post(port, "predict", {"tasks": queries})["tasks"]
    for name, points in tasks.items():
        x, y = torch.tensor([points["x"]]), torch.tensor([points["y"]])
        adapted = learner.adapt(x, y)
        for own, said in (
            (adapted.context[0], contexts[name]["context"]),
            (learner.predict(x, adapted)[0], predictions[name]["prediction"]),
        ):
            worst = max(worst, float((own - torch.tensor(said)).abs().max()))
    return worst


def cpu_seconds(process: int) -> float:
    """What a process has computed so far, in all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    rounds: dict[str, dict[str, list[Any]]] = {mode: {"adapt": [], "predict": [], "offered": []} for mode in MODES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cavia-serving-", dir=options.folder)))
        servers = {mode: stack.enter_context(server(folder, ms, cores[0])) for mode, ms in MODES.items()}
        os.sched_setaffinity(0, {cores[-1]})
        loads = {mode: prepare(port) for mode, (port, _) in servers.items()}
        for warming in (True, *[False] * options.rounds):
            seconds = min(2.0, options.seconds) if warming else options.seconds
            for what in ("adapt", "predict", "offered"):
                for mode, (port, process) in servers.items():
                    load, before = Load(loads[mode][what].requests), cpu_seconds(process)
                    if what == "offered":
                        numbers = asyncio.run(offered(port, load, seconds, options.rate))
                    else:
                        numbers = asyncio.run(closed(port, load, seconds))
                    numbers["cpu_ms"] = round(1e3 * (cpu_seconds(process) - before) / len(load.seconds), 3)
                    if not warming:
                        rounds[mode][what].append(numbers)
                        print(mode, what, numbers, flush=True)
        difference = compare(servers["batched"][0])
    return {"rounds": rounds, "difference": difference}


def median(rounds: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def markdown(result: dict[str, Any], options: argparse.Namespace) -> str:
    rounds = result["rounds"]
    rows = "".join(
        f"| /{what} | {mode} | {median(part, 'per_second'):,.0f} | {median(part, 'p50_ms'):.1f} | "
        f"{median(part, 'p99_ms'):.1f} | {median(part, 'cpu_ms'):.2f} | {sum(one['failed'] for one in part)} |\n"
        for what in ("adapt", "predict")
        for mode, part in ((mode, rounds[mode][what]) for mode in MODES)
    )
    adapt, predict = (
        median(rounds["batched"][what], "per_second") / median(rounds["one by one"][what], "per_second")
        for what in ("adapt", "predict")
    )
    offers = "".join(
        f"| {mode} | {median(part, 'offered'):,.0f} | {median(part, 'per_second'):,.0f} | "
        f"{median(part, 'p50_ms'):.1f} | {median(part, 'p99_ms'):.1f} |\n"
        for mode, part in ((mode, rounds[mode]["offered"]) for mode in MODES)
    )
    return f"""# A service under load

`python benchmarks/serving.py --seconds {options.seconds:g} --rounds {options.rounds} --rate {options.rate:g}`, commit
{result["commit"]}, {result["machine"]["cores"]} cores, load {result["machine"]["load"]:.1f} before it.

The published model "{MODEL}" with a store in a file, each server on one core, the load from another process:
{CONNECTIONS} connections, {IDS:,} ids, 1 to {MOST_POINTS} points a task. Medians of {options.rounds} rounds, in turns.

| route | | requests a second | p50, ms | p99, ms | CPU time of one, ms | failed |
|---|---|---|---|---|---|---|
{rows}
Batched, /adapt has {adapt:.1f} times the throughput of one by one, /predict {predict:.1f} times.

Requests that come at a fixed rate at random moments, half /adapt and half /predict, timed from when they were due:

| | offered a second | answered a second | p50, ms | p99, ms |
|---|---|---|---|---|
{offers}
The largest difference between {COMPARED} answers and the library's own was {result["difference"]:.1e}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second that are offered")
    parser.add_argument("--folder", type=Path, help="where the stores are: on the disk to be measured")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {"commit": this_commit(), "machine": machine(), **measure(options)}
    publish(options.out / "serving", result, markdown(result, options))


if __name__ == "__main__":
    main()
