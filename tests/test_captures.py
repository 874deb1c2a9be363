"""Recorded streams of real servers and mocks, replayed with their times, give what one reads off them by hand.

The expected values were read from the recordings, not computed: when the first and the last piece of output came,
in how many reads, and what the usage event says. The recordings are not part of the repository; they lie beside
it in `../shared/wire/captures`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.meter import Meter, Reading, api_of

CAPTURES = Path(__file__).parents[2] / "shared" / "wire" / "captures"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the recordings are not here: ../shared/wire/captures")

_CHUNK_SIZE = re.compile(r"(?:\A|\r\n)[0-9a-f]+\r\n")


class Seen(NamedTuple):
    """What one sees in a recording."""

    reads: int  # that hold output
    first: float
    last: float
    tokens: tuple[int | None, int | None, int | None]  # prompt, completion, cached
    finish: str
    outcome: str = "ok"
    done: bool = True


UNTOLD = (None, None, None)
STREAMS = {
    "dfastllm_stream_usage": Seen(1, 1.418989, 1.418989, UNTOLD, "stop"),
    "dlmserve_stream_steps16": Seen(1, 3.722619, 3.722619, UNTOLD, "stop"),
    "lcp_stream_nousage": Seen(16, 0.03389, 0.321761, UNTOLD, "length"),
    "lcp_stream_usage": Seen(54, 0.034074, 1.09566, UNTOLD, "stop"),
    # Sends the call twice over (function_call and tool_calls), its name in every event, and an empty event at the end.
    "lcp_tool_stream": Seen(8, 0.043492, 0.273733, UNTOLD, "tool_calls"),
    "llamacpp_chat_stream_usage": Seen(64, 0.088542, 2.932822, (29, 64, 24), "length"),
    "llamacpp_stream_ping_longprefill": Seen(12, 14.861287, 15.525008, (1310, 12, 0), "length"),
    "llamacpp_tool_stream": Seen(48, 0.283206, 3.308155, UNTOLD, "length"),
    "llmock_fault_disconnect": Seen(2, 0.032393, 0.063232, UNTOLD, "", "truncated", done=False),
    "llmock_fault_malformed": Seen(10, 0.031996, 0.339765, (8, 15, None), "stop", "bad_stream"),
    "llmock_fault_stall": Seen(11, 0.038869, 3.34966, (8, 15, None), "stop"),
    "llmock_fault_truncate": Seen(2, 0.032226, 0.06279, UNTOLD, "", "truncated", done=False),
    "llmock_slow_first": Seen(11, 2.033897, 2.341826, (8, 15, None), "stop"),
    "mock_aimock_strue_u1": Seen(10, 0.063097, 0.353623, (2, 19, None), "stop"),
    "mock_fakellm_strue_u1": Seen(9, 0.001668, 0.084141, UNTOLD, "stop"),
    "mock_guidellm_strue_u1": Seen(24, 0.208466, 0.677842, (12, 24, None), "stop"),
    "mock_llmock_strue_u1": Seen(4, 0.031532, 0.123322, (7, 7, None), "stop"),
    "mock_mockllm_strue_u1": Seen(52, 0.009358, 0.582408, UNTOLD, "stop"),
    "mock_stubllm_strue_u1": Seen(25, 0.001341, 0.489143, UNTOLD, "stop"),
    "mock_xpyd-sim_strue_u0": Seen(13, 0.225481, 0.48007, UNTOLD, "stop"),
    "mock_xpyd-sim_strue_u1": Seen(13, 0.224782, 0.483762, (8, 13, None), "stop"),
    "smol_chat_stream_usage": Seen(54, 0.050878, 1.583345, (36, 55, 35), "stop"),
    "smol_tool_auto_stream": Seen(64, 0.047951, 1.436655, UNTOLD, "length"),
    "smol_tool_required_stream": Seen(64, 0.635242, 1.956016, UNTOLD, "length"),
}

BODIES: dict[str, tuple[tuple[int | None, int | None, int | None], str, int]] = {
    # tokens, finish_reason, characters of the answer or of the tool call
    "dlmserve_nonstream_steps16": ((40, 128, None), "stop", 76),
    "lcp_nonstream": ((15, 54, None), "stop", 306),
    "lcp_tool": ((23, 8, None), "tool_calls", len('get_weather{ "city": "Paris" }')),
    "llamacpp_err_badmodel": ((25, 4, 1), "length", len("<|im_")),
    "mock_guidellm_sfalse_u0": ((12, 24, None), "stop", 84),
    "mock_mockllm_sfalse_u0": ((7, 10, None), "stop", 52),
    "smol_json_schema": ((35, 24, 24), "stop", 36),
}

REFUSALS = {
    "dfastllm_err_badmodel_stream": (400, "validation_error", "400"),
    "dlmserve_err_divis": (500, "http_500", None),
    "dlmserve_err_unknown": (422, "error", None),
    "lcp_err_badjson": (500, "http_500", None),
    "llamacpp_err_badjson": (500, "server_error", "500"),
    "llmock_fail_429": (429, "rate_limit_error", "rate_limit_exceeded"),
}


def replay(name: str) -> Reading:
    """The meter's reading of a recording; the chunk framing of HTTP is taken off first, as the backend leg does."""
    rows = [json.loads(line) for line in (CAPTURES / f"{name}.jsonl").read_text().splitlines()]
    asked, received = rows[0], [row for row in rows if row["kind"] == "recv"]
    meter = Meter(api=api_of(asked["path"]), asked_stream='"stream":true' in asked["body"].replace(" ", ""))
    head, _, received[0]["raw"] = received[0]["raw"].partition("\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.lower().split("\r\n")[1:])
    meter.head(received[0]["t"], int(head.split()[1]), lines["content-type"])
    chunked = "transfer-encoding" in lines
    for row in received:
        raw: str = row["raw"]
        data = _CHUNK_SIZE.sub("", raw).removesuffix("\r\n") if chunked else raw
        if data:
            meter.feed(data.encode(), row["t"])
    cut = chunked and not "".join(row["raw"] for row in received).endswith("0\r\n\r\n")
    end: Any = received[-1]["t"]
    return meter.finish(end, ended=end, outcome="truncated" if cut else None, id=name, started_at=0.0)


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_reads_as_by_hand(name: str) -> None:
    reading, seen = replay(name), STREAMS[name]
    assert reading.streamed
    assert reading.outcome == seen.outcome
    assert len(reading.arrivals) == seen.reads
    assert (reading.ttft, reading.arrivals[-1].at) == (seen.first, seen.last)
    tokens = reading.tokens
    assert (tokens.prompt, tokens.completion, tokens.cached) == seen.tokens
    assert reading.usage_source == ("none" if seen.tokens == UNTOLD else "reported")
    assert reading.finish_reasons == ((seen.finish,) if seen.finish else ())
    assert reading.done_seen is seen.done


@pytest.mark.parametrize("name", BODIES)
def test_a_recorded_body_reads_as_by_hand(name: str) -> None:
    reading = replay(name)
    tokens, finish, characters = BODIES[name]
    assert (reading.outcome, reading.streamed, len(reading.arrivals)) == ("ok", False, 1)
    assert reading.ttft == reading.e2e
    assert (reading.tokens.prompt, reading.tokens.completion, reading.tokens.cached) == tokens
    assert reading.finish_reasons == (finish,)
    assert reading.arrivals[0].answer + reading.arrivals[0].tool == characters


@pytest.mark.parametrize("name", REFUSALS)
def test_a_recorded_refusal_reads_as_by_hand(name: str) -> None:
    reading = replay(name)
    assert (reading.outcome, len(reading.arrivals), reading.usage_source) == ("backend_error", 0, "none")
    assert reading.fault is not None
    assert (reading.status, reading.fault.type, reading.fault.code) == REFUSALS[name]


def test_a_stall_is_one_gap() -> None:
    """From "mock " at 0.064402 to "reply: " at 3.098523."""
    assert replay("llmock_fault_stall").stalls == [pytest.approx(3.034121)]


def test_the_body_of_a_fastapi_refusal_is_told() -> None:
    fault = replay("dlmserve_err_unknown").fault
    assert fault is not None and "parallel_tokens" in fault.message
