"""One question to a backend, straight: its answer as a reading, by the same meter as all traffic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from .. import headers
from ..body import Body, Path
from ..dialects import Dialect, Parameters, translate
from ..fetch import Answer, fetch
from ..gateway import pool
from ..meter import Fault, Meter, Reading
from ..settings import Backend
from ..upstream import Call, Header, Request, UpstreamFault

PROMPT = "Explain in two sentences what a manometer measures."
TOKENS = 128  # at most, for each answer
_SAME = {"temperature": 0, "seed": 1}  # the same question has the same answer, as far as the backend can
_JSON = [(b"content-type", b"application/json"), (b"accept", b"*/*"), (b"user-agent", b"manometer-check")]


class Probe:
    """A backend's pool, and what is asked over it."""

    def __init__(self, backend: Backend, dialect: Dialect, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend = backend
        self.dialect = dialect
        self.asked = 0  # requests for tokens so far
        self.fixed = True  # sampling is held fixed; some models refuse that
        self._clock = clock
        self._pool = pool(backend, clock)
        self._headers = headers.to_backend(_JSON, backend.secret, passthrough=False)

    async def close(self) -> None:
        await self._pool.close()

    async def get(self, target: str) -> Answer:
        """Any path, as it is. Raises UpstreamFault."""
        return await fetch(self._pool, Request(b"GET", target.encode("ascii", "replace"), self._headers))

    def target(self, path: str) -> str:
        """Where the client's path goes."""
        return self.backend.origin.target(path).decode("latin-1")

    @property
    def _light(self) -> dict[str, Any]:
        """Few steps where steps have a field: what is asked beside is not worth many."""
        return {name: 8 for name in ("steps", "steps_per_block") if name in self.dialect.fields}

    async def chat(
        self,
        model: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        raw: Mapping[Path, Any] | None = None,
        stream: bool = False,
    ) -> Reading:
        """A short answer. `parameters` go through the dialect, `raw` members go as they are."""
        self.asked += 1
        asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": PROMPT}]}
        asked |= {"max_tokens": TOKENS} | (_SAME if self.fixed else {}) | ({"stream": True} if stream else {})
        body = Body.read(orjson.dumps(asked))
        translation = translate(Parameters(self._light | dict(parameters or {})), body, "chat", self.dialect)
        sent = translation.apply(body, raw)
        snapshots = (parameters or {}).get("view") == "snapshot"
        meter = Meter(received=self._clock(), asked_stream=stream, replace=snapshots, keep_text=True)
        request = Request(b"POST", self.backend.origin.target("/v1/chat/completions"), self._headers, sent)
        return await _measure(self._pool.send, request, meter, self._clock)


class _Sink:
    """Feeds the meter, and says when it is over."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.call: Call | None = None
        self.over: asyncio.Future[UpstreamFault | None] = asyncio.get_running_loop().create_future()

    def on_head(self, at: float, status: int, headers: list[Header]) -> None:
        found = {name.lower(): value.decode("latin-1") for name, value in headers}
        self.meter.head(at, status, found.get(b"content-type", ""), found.get(b"content-encoding", ""))

    def on_chunk(self, at: float, data: bytes) -> None:
        self.meter.feed(data, at)
        if self.meter.output and self.call is not None:
            self.call.output()

    def on_end(self, at: float) -> None:
        self._end(None)

    def on_fault(self, at: float, fault: UpstreamFault) -> None:
        self._end(fault)

    def _end(self, fault: UpstreamFault | None) -> None:
        if not self.over.done():
            self.over.set_result(fault)


async def _measure(send: Any, request: Request, meter: Meter, clock: Callable[[], float]) -> Reading:
    sink = _Sink(meter)
    fault: UpstreamFault | None
    try:
        sink.call = await send(request, sink)
        fault = await sink.over
    except UpstreamFault as unreached:
        fault = unreached
    finally:
        if sink.call is not None and not sink.over.done():
            sink.call.abort()
    at = clock()
    return meter.finish(
        at,
        id="check",
        started_at=0.0,
        ended=at,
        outcome=fault.outcome if fault else None,
        fault=Fault("upstream_error", fault.message, fault.code) if fault else None,
    )
