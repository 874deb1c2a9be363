"""Faults that real people met, each a YAML file beside this module, played against a reverse proxy.

A scripted backend listens on loopback, a raw client sends the case's request to the proxy, and what both saw is
checked. `expect.record` and `expect.metrics` are right values for a measuring proxy: `tests/test_cases.py` compares
them with what Manometer says. Any other proxy that sends /v1/… to this backend can be tried as well:

    python -m tests.cases.replay --direct                                        # the replay checks itself
    python -m tests.cases.replay --proxy http://127.0.0.1:8080 --backend-port 9199 [--only 006,07]
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from time import monotonic as now
from typing import Any, NamedTuple

import yaml

from .checks import LATE, check_client, check_upstream
from .client import Answer, send_request
from .upstream import HOST, Upstream

CASES = sorted(Path(__file__).parent.glob("[0-9][0-9][0-9]-*.yaml"))


class Replay(NamedTuple):
    """A case as it went."""

    problems: list[str]
    answers: list[Answer]
    upstream: Upstream

    @property
    def late(self) -> bool:
        """Whether nothing but times were wrong: a busy machine, perhaps."""
        return bool(self.problems) and all(problem.startswith(LATE) for problem in self.problems)


def load(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return case


async def replay(case: dict[str, Any], proxy: str | None, backend_port: int) -> Replay:
    """`proxy` None: the client talks to the backend."""
    expect = {name: case["expect"].get(name) or {} for name in ("to_client", "to_upstream")}
    upstream = Upstream(case["upstream_script"], backend_port)
    await upstream.start()
    try:
        answers = await _ask(case["client_request"], proxy or f"http://{HOST}:{upstream.port}")
        left = sum(answer.end in ("aborted", "timeout") for answer in answers)
        end = now() + 1.0  # for each leaving to reach the backend, which must not be the first to go
        while len(upstream.disconnects) < left and now() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    finally:
        await upstream.stop()
    told = expect["to_client"]
    told = {k: v for k, v in told.items() if k != "direct"} | (told.get("direct", {}) if proxy is None else {})
    problems = [problem for answer in answers for problem in check_client(told, answer, upstream)]
    problems += check_upstream(expect["to_upstream"], answers[0], upstream, proxy is None)
    return Replay(problems + upstream.errors, answers, upstream)


async def _ask(request: dict[str, Any], base: str) -> list[Answer]:
    gate = asyncio.Semaphore(request.get("concurrency", 1))

    async def one() -> Answer:
        async with gate:
            return await send_request(base, request)

    return list(await asyncio.gather(*(one() for _ in range(request.get("repeat", 1)))))


async def main(args: argparse.Namespace) -> int:
    failed = 0
    for path in CASES:
        if not path.name.startswith(tuple((args.only or "").split(","))):
            continue
        result = await replay(load(path), None if args.direct else args.proxy, args.backend_port)
        print("\n     ".join([f"{'FAIL' if result.problems else 'ok  '} {path.stem}", *result.problems]))
        failed += bool(result.problems)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play the fault corpus against a reverse proxy.")
    parser.add_argument("--proxy", default="http://127.0.0.1:8080")
    parser.add_argument("--backend-port", type=int, default=0)
    parser.add_argument("--direct", action="store_true", help="no proxy: the client talks to the scripted backend")
    parser.add_argument("--only", help="beginnings of file names, separated by commas")
    raise SystemExit(asyncio.run(main(parser.parse_args())) > 0)
