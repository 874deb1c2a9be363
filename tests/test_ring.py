from decimal import Decimal

import orjson
import pytest

from proxy.meter import Attempt, Fault, Usage
from proxy.ring import HORIZON, Ring
from proxy.window import Backend
from tests.traffic import AR, MERCURY, NOW, arrivals, opening, plain, reading


def ring(*backends, since=NOW - 1000, **limits):
    return Ring(backends or (MERCURY, AR), since=since, **limits)


def rows(summary):
    return {backend["name"]: backend for backend in summary["backends"]}


def test_the_newest_comes_first():
    kept = ring()
    for name in "abc":
        kept.finished(reading(name))
    assert [entry.reading.id for entry in kept.newest()] == ["c", "b", "a"]


def test_only_the_newest_are_kept():
    kept = ring(keep=3)
    for i in range(10):
        kept.finished(reading(str(i)))
    assert [entry.reading.id for entry in kept.newest()] == ["9", "8", "7"]
    assert kept.find("6") is None
    assert kept.find("7") is not None


def test_long_streams_push_out_more_than_short_ones():
    kept = ring(keep_bytes=64 * 1000)
    for i in range(5):
        kept.finished(reading(str(i), arrivals=arrivals([(0.001 * n, 1) for n in range(400)])))
    assert len(kept) == 2


def test_one_reading_is_kept_however_long_it_is():
    kept = ring(keep_bytes=1)
    kept.finished(reading("a"))
    kept.finished(reading("b"))
    assert [entry.reading.id for entry in kept.newest()] == ["b"]


def test_an_id_that_comes_twice_is_kept_once():
    kept = ring(keep_bytes=64 * 5)
    for _ in range(3):
        kept.finished(reading("a", done=2.0))
    assert len(kept) == 1
    kept.finished(reading("b", arrivals=arrivals([(0.5, 1)])))
    assert len(kept) == 2


def test_a_failure_outlives_the_good_ones_that_push_it_out():
    kept = ring(keep=5)
    kept.finished(reading("bad", outcome="truncated", fault=Fault("truncated", "cut after 3 events")))
    for i in range(50):
        kept.finished(reading(str(i)))
    assert kept.find("bad").outcome == "truncated"
    assert kept.look(NOW + 1, 60).summary()["failures"] == [
        {
            "id": "bad",
            "at": NOW + 1.0,
            "backend": "mercury",
            "model": "mercury-2.5",
            "outcome": "truncated",
            "status": 200,
            "type": "truncated",
            "message": "cut after 3 events",
            "e2e": 1.0,
            "arrivals": 4,
            "completion": 192,
            "attempts": [],
        }
    ]


def test_a_success_at_the_second_attempt_is_in_the_feed():
    kept = ring()
    tries = (Attempt("mercury", "unreachable", None, 0.1), Attempt("ar", "ok", 200, 1.0))
    kept.finished(plain("a", attempts=tries))
    (entry,) = kept.look(NOW + 1, 60).summary()["failures"]
    assert [attempt["outcome"] for attempt in entry["attempts"]] == ["unreachable", "ok"]


def test_a_client_that_leaves_is_no_failure():
    kept = ring()
    kept.finished(reading("a", outcome="client_gone"))
    summary = kept.look(NOW + 1, 60).summary()
    assert summary["failures"] == []
    assert rows(summary)["mercury"]["errors"] == 0
    assert rows(summary)["mercury"]["outcomes"] == {"client_gone": 1}


def test_started_is_finished_plus_in_flight():
    kept = ring()
    for name in "abc":
        kept.opened(opening(name, started_at=NOW))
    kept.finished(reading("b"))
    summary = kept.look(NOW + 5, 60).summary()
    assert (summary["started"], summary["finished"], summary["in_flight"]) == (3, 1, 2)
    assert rows(summary)["mercury"]["in_flight"] == 2
    assert rows(summary)["mercury"]["oldest_in_flight"] == 5.0
    assert rows(summary)["ar"]["in_flight"] == 0
    assert kept.is_open("a") and not kept.is_open("b")


def test_a_row_says_what_its_exchanges_did():
    kept = ring(since=NOW - 1000)
    for i in range(4):
        kept.finished(reading(f"m{i}", started_at=NOW - 30 + i))
    kept.finished(reading("bad", started_at=NOW - 20, outcome="backend_error", arrivals=arrivals([]), tokens=Usage()))
    mercury = rows(kept.look(NOW, 60).summary())["mercury"]
    assert mercury["n"] == 5
    assert mercury["rate"] == pytest.approx(5 / 60)
    assert (mercury["errors"], mercury["error_share"]) == (1, 0.2)
    assert mercury["ttft"] == {"n": 4, "p50": 0.5, "p95": 0.5}
    assert mercury["silence_share"] == pytest.approx((0.5 - 0.1) / 1.0)
    assert mercury["throughput"] == pytest.approx(4 * 192 / 60)
    assert mercury["e2e_rate"]["p50"] == 192.0
    assert mercury["tokens_per_burst"] == 48.0
    assert mercury["costs"] == [
        {
            "currency": "USD",
            "per_hour": pytest.approx(5 * 0.000148 / 60 * 3600),
            "per_million": pytest.approx(5 * 0.000148 / (4 * 192) * 1e6),
        }
    ]
    assert mercury["unpriced"] == 0


def test_a_row_without_traffic_has_no_numbers_but_is_there():
    row = rows(ring().look(NOW, 60).summary())["ar"]
    assert (row["decoding"], row["n"], row["rate"], row["errors"]) == ("autoregressive", 0, 0.0, 0)
    assert row["ttft"] == {"n": 0, "p50": None, "p95": None}
    assert row["silence_share"] is row["tokens_per_burst"] is row["error_share"] is None
    assert row["costs"] == []


def test_what_was_refused_before_a_backend_was_chosen_has_a_row_of_its_own():
    kept = ring()
    kept.finished(reading("a", outcome="refused", backend=None, decoding=None, arrivals=arrivals([])))
    names = [row["name"] for row in kept.look(NOW + 1, 60).summary()["backends"]]
    assert names == ["mercury", "ar", None]


def test_a_rate_is_over_the_seconds_since_the_start_when_the_window_is_longer():
    kept = ring(since=NOW - 10)
    kept.finished(reading("a", started_at=NOW - 5))
    summary = kept.look(NOW, 60).summary()
    assert summary["seconds"] == 10.0
    assert rows(summary)["mercury"]["rate"] == 0.1


def test_what_left_the_window_is_not_counted():
    kept = ring()
    kept.finished(reading("old", started_at=NOW - 120))
    kept.finished(reading("new", started_at=NOW - 20))
    assert rows(kept.look(NOW, 60).summary())["mercury"]["n"] == 1
    assert rows(kept.look(NOW, 300).summary())["mercury"]["n"] == 2


def test_a_window_that_lost_samples_says_how_much_it_covers(monkeypatch):
    kept = ring()
    monkeypatch.setattr("proxy.ring._SAMPLES", 10)
    kept._samples = type(kept._samples)(maxlen=10)
    for i in range(40):
        kept.finished(reading(str(i), started_at=NOW - 40 + i - 1.0))
    summary = kept.look(NOW, 60).summary()
    assert summary["seconds"] == 10.0
    assert rows(summary)["mercury"]["rate"] == 1.0


def test_a_json_answer_has_no_ttft_in_the_row():
    kept = ring()
    kept.finished(reading("a", streamed=False, arrivals=arrivals([(1.0, 100)])))
    mercury = rows(kept.look(NOW + 1, 60).summary())["mercury"]
    assert mercury["ttft"]["n"] == 0
    assert mercury["silence_share"] is None
    assert mercury["tokens_per_burst"] is None
    assert mercury["completion"] == 192


def test_unknown_tokens_and_prices_are_counted_not_zeroed():
    kept = ring()
    kept.finished(reading("a", tokens=Usage(), usage_source="none", cost=None))
    mercury = rows(kept.look(NOW + 1, 60).summary())["mercury"]
    assert (mercury["usage_unknown"], mercury["unpriced"]) == (1, 1)
    assert mercury["costs"] == []
    assert mercury["e2e_rate"]["p50"] is None


def test_a_rented_instance_costs_by_the_hour_and_by_what_it_made_of_it():
    kept = ring(Backend("mercury", "diffusion", Decimal("3.60"), "EUR"))
    for i in range(6):
        kept.finished(reading(str(i), started_at=NOW - 20 + i, cost=None))
    (cost,) = rows(kept.look(NOW, 60).summary())["mercury"]["costs"]
    assert cost["currency"] == "EUR"
    assert cost["per_hour"] == pytest.approx(3.60)
    assert cost["per_million"] == pytest.approx(3.60 / (6 * 192 / 60 * 3600) * 1e6)


def test_tokens_are_put_into_the_second_in_which_they_arrived():
    kept = ring()
    kept.finished(reading("a", started_at=NOW - 10 + 0.35))  # bursts at .85, .95, 1.05 and 1.15
    series = kept.look(NOW, 60).summary()["tokens"]
    assert series["start"] == NOW - 60
    assert [(i, v) for i, v in enumerate(series["backends"]["mercury"]) if v] == [(50, 96.0), (51, 96.0)]


def test_the_series_forgets():
    kept = ring()
    for i in range(3 * HORIZON):
        kept.finished(reading(str(i), started_at=NOW + i))
    assert len(kept._series.copy()["mercury"]) <= 2 * HORIZON


def test_a_summary_survives_half_a_surrogate_pair():
    kept = ring()
    kept.finished(reading("a", asked_model="m\ud800"))
    (entry,) = kept.newest()
    assert orjson.loads(orjson.dumps({"is": entry.summary()}).replace(b"\\ud800", b"?"))["is"]["asked_model"] == "m?"
