"""Bytes as backends send them, for tests: chat chunks, usage, ends; and a meter that has read them."""

from __future__ import annotations

import json
from typing import Any

from proxy.meter import Meter, Reading

DONE = b"data: [DONE]\n\n"


def event(doc: Any, name: str = "") -> bytes:
    """One server-sent event that holds a JSON document."""
    data = json.dumps(doc, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + data + b"\n\n"


def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
    """One chat chunk."""
    return event({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": list(choices)} | more)


def say(content: str | None = None, *, index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One choice of a chat chunk."""
    delta = delta if content is None else {"content": content} | delta
    return {"index": index, "delta": delta, "finish_reason": finish}


def text(content: str, **more: Any) -> bytes:
    return chunk(say(content), **more)


def stop(reason: str = "stop", **more: Any) -> bytes:
    return chunk(say(finish=reason), **more)


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(usage=counts | more)


def body(content: str, **more: Any) -> bytes:
    """A whole chat answer, not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]} | more).encode()


def read(
    *reads: bytes | tuple[float, bytes],
    status: int = 200,
    kind: str = "text/event-stream",
    coding: str = "",
    end: float = 9.0,
    outcome: str | None = None,
    hold: float = float("nan"),
    **options: Any,
) -> Reading:
    """The reading of an exchange whose head came at 0, and its reads at their times or at 1, 2, 3 …

    `hold`: how long after each read the client's socket had taken it.
    """
    meter = Meter(**options)
    meter.head(0.0, status, kind, coding)
    for number, item in enumerate(reads, start=1):
        at, data = item if isinstance(item, tuple) else (float(number), item)
        meter.feed(data, at, at + hold)
    return meter.finish(end, id="r", started_at=0.0, ended=end, outcome=outcome)
