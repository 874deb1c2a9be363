"""The fault corpus through the whole product: `manometer serve` between a raw client and a scripted backend.

What client and backend saw is checked by the corpus's own replay; here the reading that the admin API gives, and
what /metrics counted, are held to `expect.record` and `expect.metrics`. Where the corpus and our definitions
differ, the definition wins: `OURS` says where.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.meter import MEASURED
from tests.cases.replay import CASES, Replay, load, replay
from tests.cases.text import unescape
from tests.served import Manometer, Metrics


@pytest.fixture(scope="module")
def manometer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manometer]:
    running = Manometer(tmp_path_factory.mktemp("manometer"))
    yield running
    running.stop()


@dataclass(slots=True)
class Played:
    """One case as it happened, on one clock: seconds of `time.monotonic`."""

    case: dict[str, Any]
    result: Replay
    reading: dict[str, Any]

    @property
    def received(self) -> float:
        return float(self.reading["started_at"]) - (time.time() - time.monotonic())

    def event(self, number: int) -> Write:
        """The write that held the end of the n-th data event."""
        data = bytes(self.result.upstream.responses[0]["payload"])
        ends = [m.end() for m in re.finditer(rb"(?m)^(?:\xef\xbb\xbf)?data:.*?(?:\r\n\r|\n\n)", data, re.DOTALL)]
        return next(write for write in self.writes() if write.size >= ends[number - 1])

    def planned(self, milliseconds: float) -> Write:
        """The write that the script put at this time, or the first one after it."""
        return next(write for write in self.writes() if write.planned >= milliseconds)

    def writes(self) -> Iterator[Write]:
        planned = 0
        answer, log = self.result.answers[0], iter(self.result.upstream.responses[0]["log"])
        for step in self.case["upstream_script"]:
            planned += step.get("sleep_ms", 0)
            if "send" in step:
                at, size = next(log)
                had = (when for when, got in answer.arrivals if got >= size)
                yield Write(planned, at, next(had, float("inf")), size)


class Write(NamedTuple):
    """A write of the backend."""

    planned: int  # milliseconds after the request, by the script
    at: float  # when it was
    had: float  # when the client had it
    size: int  # bytes of payload so far


NOT_KEPT: Any = object()  # the proxy keeps no texts
# The words of the corpus in ours, and what our definitions say otherwise: a JSON answer has a ttft, its e2e; a page
# that is no answer is a bad stream; tokens under a coding that nobody here knows are unknown.
OUTCOMES = {"client_abort": "client_gone", "upstream_error": "backend_error"}
OURS: dict[str, dict[str, Any]] = {
    "009": {"content_bytes": NOT_KEPT, "characters": len("a\u2028b\u2029c\u0085d tail")},
    "017": {"outcome": "bad_stream"},
    "018": {"ttft_ms": {"about": 120, "tol": 80}},
    "021": {"completion_tokens": None},
    "022": {"ttft_ms": {"about": 300, "tol": 80}},
    "023": {"itl_ms": NOT_KEPT, "last_output_ms": 210},
    "074": {"error_type": "upstream_error", "error_code": "upstream_cut"},
    "075": {"error_type": "upstream_error", "error_code": "upstream_disconnected"},
    "112": {"outcome": ["client_gone"] * 5},
    "115": {"outcome": ["ok"] * 20},
    "132": {"outcome": ["ok", "ok", "backend_error"] * 3 + ["ok"]},
    "133": {"outcome": "client_gone"},
    "134": {"outcome": ["ok"] * 6},
}


CLOCK = 0.002  # started_at is of another clock


def seen(write: Write, at: float | None, played: Played) -> bool:
    """Exact: a read that was stamped between the backend's write and the client's having it."""
    return at is not None and write.at - CLOCK <= played.received + at <= write.had + CLOCK


def output_at(name: str) -> Callable[[Any, Played], bool]:
    """The stamp of an arrival, against the write that the script put at that time."""

    def check(want: Any, played: Played) -> bool:
        at = played.reading[name]
        return at is None if want is None else seen(played.planned(want["about"]), at, played)

    return check


def took(want: Any, played: Played) -> bool:
    """From received to the last byte written: not before the backend wrote it, and not half a second later."""
    late = played.received + played.reading["e2e"] - played.planned(want["about"]).at
    return -CLOCK <= late < 0.5


def spaced(want: Any, played: Played) -> bool:
    """The usual formula, on the arrivals' own times, which `ttft_ms` holds to the writes."""
    times, tokens = [row["at"] for row in played.reading["arrivals"]], played.reading["tokens"]["completion"]
    if want is None:
        return played.reading["tpot"] is None
    return played.reading["tpot"] == pytest.approx((times[-1] - times[0]) / (tokens - 1)) and len(times) > 1


def characters(reading: Mapping[str, Any]) -> int:
    return sum(row["answer"] + row["tool"] for row in reading["arrivals"])


def error(name: str) -> Callable[[Any, Played], bool]:
    return lambda want, played: (played.reading["fault"] or {}).get(name) == want


def token(name: str) -> Callable[[Any, Played], bool]:
    return lambda want, played: played.reading["tokens"][name] == want


def plain(name: str) -> Callable[[Any, Played], bool]:
    return lambda want, played: played.reading[name] == want


RECORD: dict[str, Callable[[Any, Played], bool]] = {
    "outcome": lambda want, played: played.reading["outcome"] == OUTCOMES.get(want, want),
    "http_status": plain("status"),
    "stream": plain("streamed"),
    "stream_requested": lambda want, played: want is ('"stream":true' in played.case["client_request"]["body"]),
    "ttft_event": lambda want, played: seen(played.event(want), played.reading["ttft"], played),
    "ttft_ms": output_at("ttft"),
    "ttfo_ms": output_at("ttfa"),
    "total_ms": took,
    "total_ends_at": lambda want, played: played.reading["ended"] <= played.reading["e2e"] and want == "[DONE] event",
    "tpot_ms": spaced,
    "itl_ms": lambda want, played: played.reading["gaps"] == want,
    "last_output_ms": lambda want, played: seen(played.planned(want), played.reading["arrivals"][-1]["at"], played),
    "characters": lambda want, played: characters(played.reading) == want,
    "data_events": plain("data_events"),
    "token_events": plain("token_events"),
    "parse_errors": plain("parse_errors"),
    "prompt_tokens": token("prompt"),
    "completion_tokens": token("completion"),
    "reasoning_tokens": token("reasoning"),
    "cached_tokens": token("cached"),
    "tokens_per_event": lambda want, played: [row["burst"] for row in played.reading["arrivals"]] == want,
    "output_tps_total": lambda _, played: played.reading["e2e_rate"] == pytest.approx(120 / played.reading["e2e"]),
    "usage_source": lambda want, played: played.reading["usage_source"] == ("none" if want == "none" else "reported"),
    "usage_is_final": plain("usage_final"),
    "finish_reason": lambda want, played: played.reading["finish_reasons"] == ([want] if want else []),
    "finish_reasons": plain("finish_reasons"),
    "choices": plain("choices"),
    "done_seen": plain("done_seen"),
    "content": lambda want, played: characters(played.reading) == len(want),
    "cost_usd": plain("cost"),
    "cost_status": lambda want, played: want == "unpriced" and played.reading["cost"] is None,
    "error_type": error("type"),
    "error_code": error("code"),
    "attempts": lambda want, played: len(played.reading["attempts"]) == want,
    "route": plain("path"),
    "model": lambda want, played: played.reading["asked_model"] == (want and unescape(want).decode()),
}


@dataclass(slots=True)
class Counted:
    """/metrics before and after a case whose outcome was this."""

    before: Metrics
    after: Metrics
    outcome: str

    def grew(self, name: str, **labels: str) -> float:
        return self.after.sum(name, **labels) - self.before.sum(name, **labels)


def tokens_counted(want: Any, counted: Counted) -> bool:
    return all(counted.grew("tokens_total", type=kind, source="reported") == number for kind, number in want.items())


METRICS: dict[str, Callable[[Any, Counted], bool]] = {
    "requests_total": lambda want, counted: (
        counted.grew("requests_total", outcome=counted.outcome) == counted.grew("requests_total") == want["delta"]
    ),
    "tokens_total": tokens_counted,
    "usage_missing_total": lambda want, counted: counted.grew("tokens_total", source="reported") == 0,
    "inflight_after": lambda want, counted: counted.after.sum("requests_in_flight") == want,
    "exposition_parses": lambda want, counted: bool(counted.after.samples) is want,
    "series_named_fake_total": lambda want, counted: (
        sum("fake_total" in sample.name for sample in counted.after.samples) == want
    ),
    "model_label": lambda _, counted: (
        {s.labels["model"] for s in counted.after.samples if "model" in s.labels} <= {"m-ar", "m-dif", "other", ""}
    ),
    "ttft_observations": lambda want, counted: counted.grew("time_to_first_token_seconds_count") == want,
    "duration_highest_finite_bucket_s_at_least": lambda want, counted: (
        counted.after.bounds("request_duration_seconds")[-1] >= want
    ),
    "ttft_lowest_bucket_s_at_most": lambda want, counted: (
        counted.after.bounds("time_to_first_token_seconds")[0] <= want
    ),
    "tpot_lowest_bucket_s_at_most": lambda want, counted: (
        counted.after.bounds("time_per_output_token_seconds")[0] <= want
    ),
    "count_delta": lambda want, counted: counted.grew("request_duration_seconds_count") == want,
    "same_on_consecutive_scrapes": lambda want, counted: want > 0,  # a test of its own, with two workers
    "cost_usd_total_delta": lambda want, counted: counted.grew("cost_total") == want,
    "unpriced_requests_total": lambda want, counted: counted.grew("unpriced_requests_total") == want,
}


class Play(NamedTuple):
    """A case as it went: the replay's own result, the readings, the oldest first, and /metrics around it."""

    result: Replay
    readings: list[dict[str, Any]]
    before: Metrics | None
    after: Metrics | None


def play(manometer: Manometer, case: dict[str, Any]) -> Play:
    """Once, and twice more when nothing but a time was off."""
    expect = case["expect"]
    number = case["client_request"].get("repeat", 1) if counts(case) else 0
    for last in (False, False, True):
        known = manometer.ids()
        before = manometer.metrics() if expect["metrics"] else None
        result = asyncio.run(replay(case, manometer.url, manometer.backend))
        readings = manometer.readings(known, number)
        if last or not result.late:
            break
    after = manometer.metrics() if expect["metrics"] else None
    return Play(result, sorted(readings, key=lambda reading: reading["started_at"]), before, after)


def counts(case: dict[str, Any]) -> bool:
    """Whether it is an exchange with a model."""
    return bool(case["expect"]["record"].get("counted_as_llm_request", True))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_the_fault_is_met(manometer: Manometer, path: Path) -> None:
    case = load(path)
    result, readings, before, after = play(manometer, case)
    assert not result.problems
    if not counts(case):
        assert not [reading for reading in readings if reading["api"] in MEASURED]
        return
    record = case["expect"]["record"] | OURS.get(path.stem[:3], {})
    assert not any(reading["fault"] for reading in readings if reading["outcome"] in ("ok", "client_gone"))
    if isinstance(record["outcome"], list):
        assert [reading["outcome"] for reading in readings] == record.pop("outcome")
    played = Played(case, result, readings[0])
    for name, want in record.items():
        assert want is NOT_KEPT or RECORD[name](want, played), (name, want, readings[0])
    if before and after:
        counted = Counted(before, after, readings[0]["outcome"])
        for name, want in case["expect"]["metrics"].items():
            assert METRICS[name](want, counted), (name, want)


def test_no_key_is_in_the_log_or_in_what_the_admin_side_says(manometer: Manometer) -> None:
    told = manometer.log.read_text() + manometer.get("/metrics") + manometer.get("/api/requests?limit=1000")
    assert manometer.said("exchange")
    assert "client-key" not in told and "backend-key" not in told


@pytest.mark.parametrize(
    "spelling", ["http://127.0.0.1:{port}/", "http://127.0.0.1:{port}/v1", "http://127.0.0.1:{port}/v1/"]
)
def test_every_spelling_of_the_base_url_gives_the_same_target(tmp_path: Path, spelling: str) -> None:
    case = load(next(path for path in CASES if path.stem.startswith("084")))
    running = Manometer(tmp_path, spelling)
    try:
        assert not play(running, case).result.problems
    finally:
        running.stop()


def test_two_workers_are_one_in_every_scrape(tmp_path: Path) -> None:
    case = load(next(path for path in CASES if path.stem.startswith("115")))
    running = Manometer(tmp_path, workers=2)
    try:
        played = play(running, case)
        assert not played.result.problems
        assert [running.metrics().sum("requests_total", outcome="ok") for _ in range(5)] == [20.0] * 5
    finally:
        running.stop()


def test_the_replay_sees_what_is_wrong() -> None:
    """The case's own answer, and expectations that it does not meet."""
    case = load(CASES[0])
    case["expect"]["to_client"] = {
        "status": 404,
        "end": "error",
        "payload": "sse_without_usage_only",
        "headers_equal": ["X-None: 1"],
        "headers_absent": ["Content-Type"],
        "arrivals": [{"contains": "Hello", "lag_below_ms": -1}, {"contains": "nowhere", "lag_below_ms": 1}],
        "total_before_ms": 1,
        "json_error": True,
        "got_100": True,
    }
    case["expect"]["to_upstream"] = {
        "requests": 2,
        "target": "/v2",
        "target_not_contains": ["/v1"],
        "headers_equal": ["X-None: 1"],
        "header_once": ["x-none"],
        "disconnect_within_ms": 1,
        "max_held_bytes": 0,
    }
    problems = asyncio.run(replay(case, None, 0)).problems
    assert len(problems) == 9 + 7, problems
