"""What Prometheus asks for: requests, how long they took, how large batches are, how many tasks there are."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "cavia_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "cavia_request_seconds",
            "From a request's header to the end of its answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "cavia_batch_requests", "Requests that were answered together", buckets=SIZES, registry=self.registry
        )
        self.known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.tasks = Gauge("cavia_tasks", "Tasks in the store", registry=self.registry)

    def seen(self, route: str, status: int, seconds: float) -> None:
        if (route, status) not in self.known:  # looking up labels takes longer than counting
            self.known[route, status] = self.requests.labels(route, str(status)), self.latency.labels(route)
        count, time = self.known[route, status]
        count.inc()
        time.observe(seconds)

    def text(self, tasks: int) -> bytes:
        self.tasks.set(tasks)
        return generate_latest(self.registry)
