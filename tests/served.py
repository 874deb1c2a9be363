"""`manometer serve` as a process of its own, with its admin side, for tests of the whole product."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

CONFIG = """
[listen]
address = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = {workers}

[clients]
tests = "client-key"

[backends.main]
url = "{url}"
key = "backend-key"
models = ["m-ar", "m-dif", "*"]
prices = [
  {{ model = "m-ar", input = "1.00", cached_input = "0.10", output = "4.00" }},
  {{ model = "m-dif", input = "0.25", cached_input = "0.025", output = "1.00" }},
]
"""
PATIENCE = 60.0  # a process takes a while to start on a busy machine; nothing waits longer than it must
Found = TypeVar("Found")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Manometer:
    """`manometer serve` as a process of its own, in front of whatever listens on `backend`."""

    def __init__(self, folder: Path, url: str = "http://127.0.0.1:{port}", workers: int = 1) -> None:
        self.backend = free_port()
        config, self.log = folder / "manometer.toml", folder / "log"
        config.write_text(CONFIG.format(url=url.format(port=self.backend), workers=workers))
        with self.log.open("w") as out:
            command = [sys.executable, "-m", "proxy.cli", "serve", "--config", str(config)]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            started = self.wait(lambda: next(iter(self.said("listening")), None))
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.url, self.admin = (f"http://{started[name]}" for name in ("address", "admin"))

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def wait(self, look: Callable[[], Found | None]) -> Found:
        """What `look` finds, as soon as it finds something."""
        end = time.monotonic() + PATIENCE
        while not (found := look()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, f"nothing came within {PATIENCE} s\n{self.log.read_text()[-2000:]}"
            time.sleep(0.01)
        return found

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.admin + path, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def ids(self) -> list[str]:
        """Of all readings, the oldest first."""
        return [row["id"] for row in json.loads(self.get("/api/requests?limit=1000"))["requests"]][::-1]

    def readings(self, known: list[str], number: int) -> list[dict[str, Any]]:
        """The `number` readings that are new."""
        seen = set(known)

        def look() -> list[str] | None:
            new = [id for id in self.ids() if id not in seen]
            return new if len(new) >= number else None

        new = self.wait(look) if number else [id for id in self.ids() if id not in seen]
        return [json.loads(self.get(f"/api/requests/{id}")) for id in new]

    def metrics(self) -> Metrics:
        return Metrics(self.get("/metrics"))

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0


class Metrics:
    """What /metrics says, by a reader that is not ours."""

    def __init__(self, text: str) -> None:
        self.samples = [s for family in text_string_to_metric_families(text) for s in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """Over all series with these labels."""
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == f"manometer_{name}" and labels.items() <= sample.labels.items()
        )

    def bounds(self, name: str) -> list[float]:
        """A histogram's finite buckets."""
        edges = {float(s.labels["le"]) for s in self.samples if s.name == f"manometer_{name}_bucket"}
        return sorted(edges - {float("inf")})
