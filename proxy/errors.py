"""Errors that the proxy makes: whose fault, what status, what the client reads.

The envelope is OpenAI's, because clients know it: `{"error": {message, type, param, code}}`. `code` is stable
and for programs, `message` says what happened and what to do, and neither ever holds a secret.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

# Faults of the backend leg that come before any answer, by outcome: the gateway's statuses.
_STATUS = {
    "unreachable": 502,
    "backend_error": 502,
    "truncated": 502,
    "timeout_connect": 504,
    "timeout_first_output": 504,
    "timeout_idle": 504,
    "timeout_total": 504,
    "internal": 500,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a client gets it."""

    status: int
    code: str
    message: str
    type: str = "invalid_request_error"
    param: str | None = None

    @property
    def body(self) -> bytes:
        return envelope(self.message, self.type, self.code, self.param)


def envelope(message: str, type: str, code: str | None, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    return orjson.dumps({"error": {"message": message, "type": type, "param": param, "code": code}})


def of_fault(outcome: str, code: str, message: str) -> Problem:
    """A fault of the backend leg, before the client got anything."""
    return Problem(_STATUS.get(outcome, 502), code, message, "upstream_error")


def stream_event(message: str, code: str) -> bytes:
    """The last event of a stream that broke. The blank line before it ends a comment that was cut in half."""
    return b"\n\ndata: " + envelope(message, "upstream_error", code) + b"\n\n"


def no_key() -> Problem:
    return Problem(
        401,
        "invalid_api_key",
        "No client key was sent. Send one of the keys of [clients] as `Authorization: Bearer KEY`.",
        "authentication_error",
    )


def wrong_key() -> Problem:
    return Problem(
        401,
        "invalid_api_key",
        "This client key is not known here. Change the key: it must be one of [clients] in the proxy's configuration.",
        "authentication_error",
    )


def unasked() -> Problem:
    return Problem(
        403,
        "unasked_page",
        "A web page sent this without asking first, and no client needs a key here. Let it send `Content-Type: "
        "application/json`, for which a browser asks the backend's leave, or give out keys under [clients].",
        "permission_error",
    )


def bad_body(why: str) -> Problem:
    return Problem(400, "invalid_json", f"The request's body can't be used: {why}. Send one JSON object.")


def not_served(path: str) -> Problem:
    return Problem(404, "not_found", f"{path[:100]!r} is not served here: a client's base URL ends with /v1.")


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        "request_too_large",
        f"The request's body is larger than {limit} bytes. Send less, or raise listen.body_limit.",
    )


def draining() -> Problem:
    return Problem(503, "shutting_down", "The proxy is shutting down. Send the request again.", "server_error")


def internal(id: str) -> Problem:
    return Problem(
        500, "internal", f"The proxy failed on this request. Its log has the reason under request {id}.", "server_error"
    )
