"""The proxy's own errors: OpenAI's envelope, a stable code, what to do, and the right status for whose fault."""

from __future__ import annotations

import json

import pytest

from proxy import errors
from proxy.errors import Problem
from proxy.meter.sse import Parser

OWN = [
    (errors.no_key(), 401, "invalid_api_key", "Authorization: Bearer"),
    (errors.unasked(), 403, "unasked_page", "[clients]"),
    (errors.wrong_key(), 401, "invalid_api_key", "Change the key"),
    (errors.bad_body("it is no JSON"), 400, "invalid_json", "Send one JSON object"),
    (errors.too_large(1000), 413, "request_too_large", "raise listen.body_limit"),
    (errors.not_served("/chat"), 404, "not_found", "base URL"),
    (errors.draining(), 503, "shutting_down", "Send the request again"),
    (errors.internal("abc"), 500, "internal", "abc"),
]


@pytest.mark.parametrize("problem, status, code, said", OWN, ids=[row[0].code for row in OWN])
def test_an_error_has_openais_envelope_and_says_what_to_do(problem: Problem, status: int, code: str, said: str) -> None:
    doc = json.loads(problem.body)
    assert list(doc) == ["error"]
    assert list(doc["error"]) == ["message", "type", "param", "code"]
    assert (problem.status, doc["error"]["code"]) == (status, code)
    assert said in doc["error"]["message"]
    assert "\n" not in doc["error"]["message"]


@pytest.mark.parametrize(
    "outcome, status",
    [
        ("unreachable", 502),
        ("backend_error", 502),
        ("truncated", 502),
        ("timeout_connect", 504),
        ("timeout_first_output", 504),
        ("timeout_idle", 504),
        ("timeout_total", 504),
        ("internal", 500),
    ],
)
def test_a_fault_of_the_backend_has_a_gateways_status(outcome: str, status: int) -> None:
    problem = errors.of_fault(outcome, "code", "what happened")
    assert (problem.status, problem.type, problem.code) == (status, "upstream_error", "code")


def test_an_error_in_a_stream_is_an_event_even_after_half_a_comment() -> None:
    for before in (b"", b"data: a\n\n", b": half a comm"):
        found = Parser().feed(before + errors.stream_event("it broke", "upstream_cut"))
        assert json.loads(found[-1].data)["error"]["code"] == "upstream_cut"
