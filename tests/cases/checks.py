"""Whether client and backend saw what a case's `expect` says: one function for each key, which returns what is wrong.

An empty answer means that nothing is. Checks whose problem starts with `late:` can fail because a machine is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from .client import Answer
from .text import (
    decoded,
    header_values,
    is_error_event,
    is_usage_only,
    json_or_none,
    json_pairs,
    sse_events,
    unescape,
    without_stream_options,
)
from .upstream import Upstream

LATE = "late: "


class Seen(NamedTuple):
    """One answer, and the backend of its case."""

    answer: Answer
    upstream: Upstream
    expect: dict[str, Any]

    @property
    def got(self) -> list[str]:
        """The events that the client got."""
        return [data for _, data in sse_events(decoded(self.answer.payload, self.answer.headers))]

    @property
    def sent(self) -> list[str]:
        """The events of the backend's first answer."""
        first = self.upstream.responses[0]
        return [data for _, data in sse_events(decoded(first["payload"], first["headers"]))]

    @property
    def asked(self) -> dict[str, Any]:
        """The first request as the backend got it."""
        return self.upstream.requests[0]


Check = Callable[[Any, Seen], str]


def wrong(problems: Iterator[str]) -> str:
    return "; ".join(problems)


def status(want: Any, seen: Seen) -> str:
    right = seen.answer.status in (want if isinstance(want, list) else [want])
    return "" if right else f"status {seen.answer.status}, not {want} ({seen.answer.detail})"


def accept(want: list[dict[str, Any]], seen: Seen) -> str:
    """One of several sound pairs."""
    pair = {"status": seen.answer.status, "end": seen.answer.end}
    return "" if pair in want else f"{pair}, not one of {want}"


def end(want: Any, seen: Seen) -> str:
    if want == "error_or_inband":
        told = seen.answer.end == "error" or any(map(is_error_event, seen.got))
        return "" if told else f"ended {seen.answer.end} with no error event: the cut looks like success"
    right = seen.answer.end in (want if isinstance(want, list) else [want])
    return "" if right else f"ended {seen.answer.end} ({seen.answer.detail}), not {want}"


def payload(want: str, seen: Seen) -> str:
    """exact: the backend's bytes (or `decoded`). sse: its events. sse_prefix: its events, then errors only."""
    if want == "any":
        return ""
    if want == "exact":
        return exact(seen)
    got, sent = seen.got, seen.sent
    if want == "sse_without_usage_only":
        sent = [data for data in sent if not is_usage_only(data)]
    if want == "sse_prefix":
        extra, got = got[len(sent) :], got[: len(sent)]
        if extra[:1] == ["[DONE]"] or not all(is_error_event(data) for data in extra if data != "[DONE]"):
            return f"events that the backend never sent: {extra}"
    return difference(got, sent)


def exact(seen: Seen) -> str:
    answer = seen.answer
    mine = decoded(answer.payload, answer.headers)
    theirs = [decoded(response["payload"], response["headers"]) for response in seen.upstream.responses]
    if "decoded" in seen.expect and not header_values(answer.headers, "content-encoding"):
        theirs.append(unescape(seen.expect["decoded"]))
    return "" if mine in theirs else f"{len(mine)} bytes {mine[:120]!r}, not {[data[:120] for data in theirs]}"


def difference(got: list[str], sent: list[str]) -> str:
    pairs = enumerate(zip_longest(got, sent), start=1)
    return next((f"event {n} of {len(sent)}: {g!r:.90}, not {s!r:.90}" for n, (g, s) in pairs if g != s), "")


def no_made_up_done(_: Any, seen: Seen) -> str:
    made_up = "[DONE]" in seen.got and not any(map(is_error_event, seen.got))
    return "a [DONE] was made up for a broken stream" if made_up else ""


def equal(want: list[str], headers: list[tuple[str, str]]) -> str:
    lines = (line.split(": ", 1) for line in want)
    return wrong(f"{name}: not {value}" for name, value in lines if value not in header_values(headers, name))


def absent(want: list[str], seen: Seen) -> str:
    return wrong(f"{name} came through" for name in want if header_values(seen.answer.headers, name))


def arrivals(want: list[dict[str, Any]], seen: Seen) -> str:
    """How long after the backend wrote something the client had it."""
    return wrong(filter(None, (lag(item, seen) for item in want)))


def lag(want: dict[str, Any], seen: Seen) -> str:
    text, answer = unescape(want["contains"]), seen.answer
    logs = [(response["payload"], response["log"]) for response in seen.upstream.responses]
    wrote = next((at for data, log in logs for at, size in log if text in data[:size]), None)
    had = next((at for at, size in answer.arrivals if text in answer.payload[:size]), None)
    if wrote is None or had is None:
        return f"{text!r} never came"
    late = (had - wrote) * 1000
    return "" if late < want["lag_below_ms"] else f"{LATE}{text!r} came {late:.0f} ms after it was written"


def total(want: float, seen: Seen) -> str:
    took = (seen.answer.ended - seen.answer.started) * 1000
    return "" if took < want else f"{LATE}{took:.0f} ms in all"


def json_error(want: bool, seen: Seen) -> str:
    doc = json_or_none(decoded(seen.answer.payload, seen.answer.headers).decode("utf-8", "replace"))
    return "" if not want or (isinstance(doc, dict) and "error" in doc) else f"no error object: {seen.answer.payload!r}"


CLIENT: dict[str, Check] = {
    "status": status,
    "accept": accept,
    "end": end,
    "payload": payload,
    "decoded": lambda want, seen: "",  # read by `exact`
    "forbid_done": no_made_up_done,
    "headers_equal": lambda want, seen: equal(want, seen.answer.headers),
    "headers_absent": absent,
    "arrivals": arrivals,
    "total_before_ms": total,
    "json_error": json_error,
    "got_100": lambda want, seen: "" if 100 in seen.answer.interim else f"interim answers {seen.answer.interim}",
}


def requests(want: int, seen: Seen) -> str:
    number = len(seen.upstream.requests)
    return "" if number == want else f"the backend got {number} requests, not {want}"


def target(want: str, seen: Seen) -> str:
    return "" if seen.asked["target"] == want else f"target {seen.asked['target']}, not {want}"


def target_without(want: list[str], seen: Seen) -> str:
    return wrong(f"{part} in {seen.asked['target']}" for part in want if part in seen.asked["target"])


def body(want: str, seen: Seen) -> str:
    """exact: byte for byte. json_except_stream_options: every member, in order, but that one."""
    got, sent = seen.asked["body"], seen.answer.sent
    if want == "exact":
        return "" if got == sent else f"{len(got)} bytes {got[:120]!r}, not {len(sent)}"
    same = without_stream_options(json_pairs(got)) == without_stream_options(json_pairs(sent))
    return "" if same else f"members lost, changed or reordered: {got[:300]!r}"


def once(want: list[str], seen: Seen) -> str:
    found = {name: header_values(seen.asked["headers"], name) for name in want}
    return wrong(f"{name}: {values}" for name, values in found.items() if len(values) != 1)


def disconnected(want: float, seen: Seen) -> str:
    left = seen.answer.aborted_at
    after = [(at - left) * 1000 for at in seen.upstream.disconnects] if left else []
    return "" if after and min(after) < want else f"{LATE}the client left, the backend's connection closed {after}"


def held(want: int, seen: Seen) -> str:
    """What was taken from the backend and not read by the client, while that read nothing."""
    if seen.answer.paused is None:
        return "the client never paused"
    at, had = seen.answer.paused
    taken = max((size for when, size in seen.upstream.sent_log if when <= at), default=0)
    return "" if taken - had <= want else f"{taken - had} bytes held"


UPSTREAM: dict[str, Check] = {
    "requests": requests,
    "proxy_only": lambda want, seen: "",  # read by `check_upstream`
    "target": target,
    "target_not_contains": target_without,
    "body": body,
    "headers_equal": lambda want, seen: equal(want, seen.asked["headers"]),
    "header_once": once,
    "disconnect_within_ms": disconnected,
    "max_held_bytes": held,
}


def check_client(expect: dict[str, Any], answer: Answer, upstream: Upstream) -> Iterator[str]:
    """Everything that is wrong."""
    if answer.framing_fault:
        yield answer.framing_fault
    seen = Seen(answer, upstream, expect)
    for name, want in expect.items():
        if problem := CLIENT[name](want, seen):
            yield problem


def check_upstream(expect: dict[str, Any], answer: Answer, upstream: Upstream, direct: bool) -> Iterator[str]:
    if direct and expect.get("proxy_only"):
        return
    if not upstream.requests:
        yield "no request reached the backend"
        return
    seen = Seen(answer, upstream, expect)
    for name, want in expect.items():
        if problem := UPSTREAM[name](want, seen):
            yield problem
