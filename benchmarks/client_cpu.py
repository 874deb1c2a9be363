"""What the load generator's own client costs, and how true it reads: 64 streams, 1,024 requests of 64 events each.

    python benchmarks/client_cpu.py [--streams 64] [--requests 1024] [--events 64] [--gap 5] [--first 25]

A simulated backend in one process, whose send times are known; the client in another, as a user would start
it. Printed: CPU of the client's whole process per event, imports included; its time to first token against
the truth; and the time from its start to its first request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """The same question each time; the answer has as many events as were asked."""

    events: int

    def __call__(self, n: int):  # what it returns is imported late, so that the start is measured too
        import orjson

        from loadgen.client import Query

        body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
        body |= {"messages": [{"role": "user", "content": "hi"}], "max_tokens": self.events}
        return Query(body=orjson.dumps(body), model="m")


def serve(options: argparse.Namespace) -> None:
    """The backend: tells its URL, then the truth of each answer when its stdin closes."""
    import uvloop

    from loadgen.decoding import Autoregressive
    from loadgen.script import Sharing
    from loadgen.simulator import Simulator

    profile = Autoregressive(
        prefill=options.first / 1000, prompt_token_time=0.0, token_time=options.gap / 1000, sharing=Sharing(), head=0.0
    )

    async def main() -> None:
        async with Simulator(profile=profile, capacity=10_000, keep=options.requests) as backend:
            print(backend.url, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            # The head and the role event go first; the second write is the first token.
            truth = sorted(log[1][0] - backend.asked[id].at for id, log in backend.log.items())
            print(json.dumps({"ttft_p50": truth[len(truth) // 2], "ttft_p99": truth[len(truth) * 99 // 100]}))

    uvloop.run(main())


def load(options: argparse.Namespace) -> None:
    """The client, as `manometer load` runs it."""
    import uvloop

    from loadgen.runner import Load, Target, run
    from loadgen.schedule import Closed
    from proxy.meter.quantile import percentiles

    amount = Load(schedule=Closed(options.streams), requests=options.requests)
    result = uvloop.run(run(amount, Target(url=options.url), Ask(options.events)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    readings = result.measured
    found = percentiles(reading.ttft for reading in readings)
    started = min(reading.started_at for reading in readings)
    events = sum(reading.data_events for reading in readings)
    wall = max(reading.started_at + reading.done for reading in readings) - started
    told = {
        "ok": sum(reading.outcome == "ok" for reading in readings),
        "events": events,
        "connections": result.connections,
        "wall": round(wall, 3),
        "cpu_us_per_event": round((used.ru_utime + used.ru_stime) / events * 1e6, 1),
        "first_request_after": round(started - options.started, 3),
        "ttft_p50": found.p50,
        "ttft_p99": found.p99,
        "loop_lag_p99": result.lag,
    }
    print(json.dumps(told))


def compare(options: argparse.Namespace) -> int:
    command = [sys.executable, __file__]
    for name in ("streams", "requests", "events", "gap", "first"):
        command += [f"--{name}", str(getattr(options, name))]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--serve"], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        url = server.stdout.readline().strip()
        client = subprocess.run(
            [*command, "--url", url, "--started", repr(time.time())], stdout=pipe, text=True, check=False
        )
        server.stdin.close()
        truth = json.loads(server.stdout.read())
    if client.returncode:
        return client.returncode
    read = json.loads(client.stdout)
    read["ttft_error_ms"] = round((read["ttft_p50"] - truth["ttft_p50"]) * 1000, 3)
    print(json.dumps({"client": read, "truth": truth}, indent=1))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--events", type=int, default=64, help="events of an answer")
    parser.add_argument("--gap", type=float, default=5.0, help="milliseconds between two events")
    parser.add_argument("--first", type=float, default=25.0, help="milliseconds to the first token")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return 0
    if options.url:
        load(options)
        return 0
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
