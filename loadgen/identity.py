"""Who answers there? Asked before a load, so that the wrong server is not loaded, and not believed.

A server that lists its models must list the one that is asked. One that lists none is asked one short
question, and must not answer in another model's name. Nothing else is concluded: servers that answer to
any name (llama.cpp does) list what they truly hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson

from proxy.meter import Reading
from proxy.upstream import Header, Pool, Request, UpstreamFault

from .client import Client, Query
from .options import Refused
from .workload import Prompt, Question

_LIMIT = 4 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """The model that will be asked, and what is worth saying about it."""

    model: str
    warnings: tuple[str, ...] = ()


async def identify(client: Client, url: str, model: str, headers: tuple[Header, ...] = ()) -> Identity:
    """The model to load; raises Refused with one line where the server is not what was named."""
    status, body = await _get(client.pool, client.origin.target("/v1/models"), headers, url)
    if status in (401, 403):
        raise Refused(f"{url} refuses the key ({status}): set MANOMETER_KEY to the right one")
    listed = names(body) if status == 200 else []
    if listed:
        return Identity(choose(model, listed, url))
    if not model:
        raise Refused(f"{url} lists no models: give --model")
    question = Question(model=model, max_tokens=8, stream=False)
    body_sent = question.body(Prompt(id="identity", text="Say yes."))
    reading = await client.ask(Query(body=body_sent, model=model, stream=False), "identity")
    return probed(reading, url, model)


def names(body: bytes) -> list[str]:
    """The ids in a list of models; empty for anything else."""
    try:
        rows = orjson.loads(body)["data"]
        return [row["id"] for row in rows if isinstance(row["id"], str)]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []


def choose(model: str, listed: list[str], url: str) -> str:
    """`model`, if the server lists it; its only model, if none was named."""
    plain = model.partition("@")[0].partition("#")[0]  # without diffusion parameters, without ordered faults
    shown = ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")
    if not model:
        if len(listed) == 1:
            return listed[0]
        raise Refused(f"{url} has {len(listed)} models, give --model: {shown}")
    if model in listed or plain in listed:
        return model
    raise Refused(f"{url} does not list {model!r}, so it is not loaded (it lists {shown}); --no-check loads it anyway")


def probed(reading: Reading, url: str, model: str) -> Identity:
    """From the answer to one short question."""
    if reading.outcome != "ok":
        fault = f": {reading.fault.message or reading.fault.type}" if reading.fault else ""
        raise Refused(f"{url} did not answer a first question ({reading.outcome}{fault}), so it is not loaded")
    answered = reading.answered_model
    if answered and not (answered.startswith(model) or model.startswith(answered)):
        raise Refused(
            f"{url} answers as {answered!r}, not as {model!r}, so it is not loaded; --no-check loads it anyway"
        )
    return Identity(model, () if answered else (f"{url} does not say which model answers",))


async def _get(pool: Pool, target: bytes, headers: tuple[Header, ...], url: str) -> tuple[int, bytes]:
    sink = _Whole()
    try:
        await pool.send(Request(b"GET", target, headers), sink)
        return await sink.ended
    except UpstreamFault as fault:
        raise Refused(f"{url}: {fault.message}") from None


class _Whole:
    """A sink that keeps a small answer."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = bytearray()

    def on_head(self, at: float, status: int, headers: list[Header]) -> None:
        self._status = status

    def on_chunk(self, at: float, data: bytes) -> None:
        self._body += data[: _LIMIT - len(self._body)]

    def on_end(self, at: float) -> None:
        self.ended.set_result((self._status, bytes(self._body)))

    def on_fault(self, at: float, fault: UpstreamFault) -> None:
        self.ended.set_exception(fault)
