"""The exposition against sums done by hand: every number below can be checked with a pencil."""

import subprocess
import threading
from collections.abc import Iterable
from decimal import Decimal
from shutil import which
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from proxy.exporter import Exporter, render
from proxy.meter import OUTCOMES, Arrival, Arrivals, Attempt, Reading, Usage
from proxy.metrics import METRICS, PREFIX
from proxy.recorder import Opening
from tests.elsewhere import missing

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
MERCURY = {"backend": "mercury", "model": "mercury-2.5", "decoding": "diffusion", "api": "chat", "mirror": "false"}
AR = {"backend": "ar", "model": "gpt-ar", "decoding": "autoregressive", "api": "chat", "mirror": "false"}
PAIRS = [("mercury", "mercury-2.5", "diffusion"), ("ar", "gpt-ar", "autoregressive")]


class Scrape:
    """The samples of one exposition, by name and labels."""

    def __init__(self, registry: CollectorRegistry, accept: str = OPENMETRICS) -> None:
        self.content_type, body = render(registry, accept)
        self.text = body.decode()
        read = read_openmetrics if "openmetrics" in self.content_type else read_text
        self.families = list(read(self.text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        found = [s.value for s in self.samples if s.name == PREFIX + name and s.labels == labels]
        assert len(found) == 1, f"{name} {labels}: {len(found)} samples"
        return float(found[0])

    def sum(self, name: str, **labels: str) -> float:
        return sum(s.value for s in self.samples if s.name == PREFIX + name and labels.items() <= s.labels.items())

    def buckets(self, name: str, **labels: str) -> dict[str, int]:
        """What each bucket holds by itself, empty ones left out."""
        upto, apart = 0, {}
        for sample in self.samples:
            if sample.name == f"{PREFIX}{name}_bucket" and labels.items() <= sample.labels.items():
                if sample.value > upto:
                    apart[sample.labels["le"]] = int(sample.value) - upto
                upto = int(sample.value)
        return apart

    def exemplars(self, name: str) -> dict[str, str]:
        return {
            s.labels.get("le", ""): s.exemplar.labels["request_id"]
            for s in self.samples
            if s.name.startswith(PREFIX + name) and s.exemplar
        }


def make(**options: Any) -> tuple[Exporter, CollectorRegistry]:
    registry = CollectorRegistry()
    return Exporter(registry, options.pop("pairs", PAIRS), **options), registry


def arrival(at: float, answer: int = 0, *, reasoning: int = 0, hold: float | None = None) -> Arrival:
    return Arrival(at, 1, answer, reasoning, 0, False, None, hold)


def reading(id: str, of: dict[str, str], **facts: Any) -> Reading:
    known = {"backend": of["backend"], "model": of["model"], "decoding": of["decoding"], "status": 200}
    return Reading(
        **{"id": id, "started_at": 1000.0, "outcome": "ok", "api": "chat", "streamed": True, **known, **facts}
    )


# A diffusion stream: 0.3 s of silence, then 30 + 60 + 30 characters for 12 tokens, a stall before the last.
DIFFUSION = reading(
    "d1",
    MERCURY,
    sent=0.002,
    head=0.1,
    ended=1.3,
    done=1.3005,
    arrivals=Arrivals.of(arrival(0.4, 30, hold=0.0002), arrival(0.55, 60, hold=0.0004), arrival(1.3, 30, hold=None)),
    tokens=Usage(prompt=100, cached=40, completion=12, reasoning=0, total=112),
    usage_source="reported",
    cost=Decimal("0.000030"),
    loop_lag=0.0007,
    attempts=(Attempt("mercury", "ok", 200, 1.3),),
    route="assistant",
)
# An autoregressive stream that reasons first: four tokens, 50 ms apart.
STEADY = reading(
    "a1",
    AR,
    sent=0.001,
    head=0.03,
    ended=0.23,
    done=0.2304,
    arrivals=Arrivals.of(arrival(0.08, reasoning=4), arrival(0.13, 4), arrival(0.18, 4), arrival(0.23, 4)),
    tokens=Usage(prompt=50, completion=4, reasoning=1, total=54),
    usage_source="reported",
)
# The same backend, not streamed: one arrival at the body's end.
WHOLE = reading(
    "a2",
    AR,
    streamed=False,
    head=0.9,
    sent=0.001,
    ended=0.95,
    done=0.951,
    arrivals=Arrivals.of(arrival(0.95, 80, hold=0.00005)),
    tokens=Usage(prompt=7, completion=20, total=27),
    cost=Decimal("0.2"),
)


def play(exporter: Exporter, *readings: Reading) -> None:
    for each in readings:
        exporter.opened(
            Opening(
                id=each.id,
                started_at=each.started_at,
                api=each.api,
                backend=each.backend,
                model=each.model,
                decoding=each.decoding,
                mirror=each.mirror,
            )
        )
        exporter.finished(each)


def test_a_mix_of_traffic_comes_out_as_the_sums_done_by_hand() -> None:
    exporter, registry = make()
    play(exporter, DIFFUSION, STEADY, WHOLE)
    seen = Scrape(registry)
    stream, whole = {"streamed": "true"}, {"streamed": "false"}

    assert seen.value("requests_started_total", **MERCURY) == 1
    assert seen.value("requests_total", **MERCURY, outcome="ok", code="200") == 1
    assert seen.value("requests_total", **AR, outcome="ok", code="200") == 2

    assert seen.buckets("time_to_first_token_seconds", **MERCURY) == {"0.4": 1}
    assert seen.buckets("time_to_first_token_seconds", **AR, **stream) == {"0.08": 1}
    assert seen.buckets("time_to_first_token_seconds", **AR, **whole) == {"1.0": 1}
    assert seen.value("time_to_first_token_seconds_sum", **AR, **whole) == 0.95
    assert seen.buckets("time_to_first_answer_seconds", **AR, **stream) == {"0.15": 1}
    assert seen.buckets("time_to_first_byte_seconds", **MERCURY) == {"0.1": 1}
    assert seen.value("backend_time_to_first_token_seconds_sum", **MERCURY, **stream) == pytest.approx(0.398)
    assert seen.value("silence_seconds_sum", **MERCURY) == pytest.approx(0.3)
    assert seen.value("silence_seconds_count", **AR) == 1  # the stream only
    # 108 of 120 characters are there with the third arrival; 10.8 of 12 with the last one.
    assert seen.buckets("time_to_90_percent_seconds", **MERCURY) == {"1.5": 1}
    assert seen.buckets("time_to_90_percent_seconds", **AR) == {"0.25": 1}
    assert seen.buckets("request_duration_seconds", **MERCURY) == {"1.5": 1}
    assert seen.buckets("request_duration_seconds", **AR) == {"0.25": 1, "1.0": 1}

    # 12 tokens by characters: 3 + 6 + 3. After the first arrival 9 tokens in 0.9 s: 0.1 s each.
    assert seen.buckets("burst_tokens", **MERCURY) == {"4.0": 2, "8.0": 1}
    assert seen.value("burst_tokens_sum", **MERCURY) == 12
    assert seen.buckets("bursts_per_request", **MERCURY) == {"4.0": 1}
    assert seen.buckets("bursts_per_request", **AR) == {"4.0": 1}
    assert seen.value("time_per_output_token_seconds_sum", **MERCURY) == pytest.approx(0.1)
    assert seen.value("time_per_output_token_seconds_sum", **AR) == pytest.approx(0.05)
    assert seen.value("time_per_output_token_seconds_count", **AR) == 1  # one arrival has no decode rate
    assert seen.value("output_tokens_per_second_sum", **MERCURY, **stream) == pytest.approx(12 / 1.3005)

    assert seen.buckets("gap_seconds", **MERCURY) == {"0.2": 1, "1.0": 1}
    assert seen.value("gap_seconds_count", **AR) == 3
    assert seen.value("stalls_total", **MERCURY) == 1
    assert seen.value("stall_seconds_total", **MERCURY) == pytest.approx(0.75)
    assert seen.value("stalls_total", **AR) == 0

    assert seen.buckets("hold_seconds", **MERCURY) == {"0.00025": 1, "0.0005": 1}  # the unknown one is left out
    assert seen.buckets("hold_seconds", **AR) == {"0.0001": 1}
    assert seen.buckets("overhead_seconds", **MERCURY) == {"0.0025": 1}  # 2 ms before, 0.5 ms after
    assert seen.buckets("event_loop_lag_seconds") == {"0.001": 1}

    def tokens(of: dict[str, str], type: str) -> float:
        return seen.value("tokens_total", **of, type=type, source="reported")

    assert [tokens(MERCURY, t) for t in ("prompt", "cached", "completion", "reasoning")] == [100, 40, 12, 0]
    assert [tokens(AR, t) for t in ("prompt", "cached", "completion", "reasoning")] == [57, 0, 24, 1]
    assert seen.value("cost_total", **MERCURY, currency="USD") == 0.00003
    assert seen.value("cost_total", **AR, currency="USD") == 0.2
    assert seen.value("unpriced_requests_total", **AR) == 1
    assert seen.value("unpriced_requests_total", **MERCURY) == 0
    assert seen.value("attempts_total", backend="mercury", reason="ok") == 1
    assert seen.value("split_total", route="assistant", backend="mercury") == 1


def test_without_output_there_is_no_time_to_first_token() -> None:
    exporter, registry = make()
    failed = [
        reading("f1", AR, outcome="timeout_first_output", done=120.0, sent=0.001, head=0.2),
        reading("f2", AR, outcome="unreachable", status=502, done=0.01),
        reading("f3", AR, outcome="truncated", done=0.5, arrivals=Arrivals.of(arrival(0.3, 5))),
    ]
    play(exporter, *failed)
    seen = Scrape(registry)
    assert seen.sum("time_to_first_token_seconds_count") == 1  # what came before the cut did come
    assert seen.value("no_output_total", **AR, reason="timeout_first_output") == 1
    assert seen.value("no_output_total", **AR, reason="unreachable") == 1
    assert seen.value("no_output_total", **AR, reason="truncated") == 0
    assert seen.sum("silence_seconds_count") == 0
    assert seen.buckets("request_duration_seconds", **AR, streamed="true") == {"0.05": 1, "0.5": 1, "120.0": 1}


def test_tokens_that_were_not_reported_are_a_guess_apart_and_counted_as_missing() -> None:
    exporter, registry = make()
    play(exporter, reading("u1", AR, done=1.0, arrivals=Arrivals.of(arrival(0.2, 10))))
    seen = Scrape(registry)
    assert seen.sum("tokens_total", source="reported") == 0
    assert seen.value("tokens_total", **AR, type="completion", source="estimated") == 3  # 10 characters / 4
    assert seen.value("usage_missing_total", **AR) == 1
    assert seen.sum("unpriced_requests_total") == 0
    assert seen.sum("burst_tokens_count") == seen.sum("output_tokens_per_second_count") == 0


def test_reported_tokens_without_a_cost_are_unpriced_whatever_is_missing() -> None:
    exporter, registry = make()
    no_price = reading("p1", AR, done=1.0, tokens=Usage(prompt=7, completion=2, total=9))
    no_completion = reading("p2", AR, done=1.0, api="embeddings", streamed=False, tokens=Usage(prompt=7, total=7))
    free = reading("p3", MERCURY, done=1.0, tokens=Usage(prompt=7, completion=2, total=9), cost=Decimal(0))
    play(exporter, no_price, no_completion, free)
    seen = Scrape(registry)
    assert seen.value("unpriced_requests_total", **AR) == 1
    assert seen.value("unpriced_requests_total", **{**AR, "api": "embeddings"}) == 1
    assert seen.value("unpriced_requests_total", **MERCURY) == 0


def test_a_mirror_is_measured_under_its_own_label() -> None:
    exporter, registry = make()
    copy = reading("m1", AR, done=1.0, mirror=True, route="assistant", arrivals=Arrivals.of(arrival(0.2, 10)))
    play(exporter, copy)
    seen = Scrape(registry)
    assert seen.sum("requests_total", mirror="false") == 0
    assert seen.sum("requests_total", mirror="true") == 1
    assert seen.sum("time_to_first_token_seconds_count", mirror="true") == 1
    assert seen.value("mirrored_total", route="assistant", backend="ar") == 1
    assert seen.sum("split_total") == 0


def test_every_configured_pair_is_there_before_its_first_request() -> None:
    _, registry = make()
    seen = Scrape(registry)
    for pair in (MERCURY, AR):
        assert seen.value("requests_started_total", **pair) == 0
        assert seen.value("requests_in_flight", **pair) == 0
        for streamed in ("true", "false"):
            assert seen.value("time_to_first_token_seconds_count", **pair, streamed=streamed) == 0
        outcomes = {
            s.labels["outcome"] for s in seen.samples if pair.items() <= s.labels.items() and "outcome" in s.labels
        }
        assert outcomes == set(OUTCOMES)


def test_a_cost_of_0_is_exported_only_where_there_is_a_price() -> None:
    exporter, registry = make(prices=[("mercury", "mercury-2.5", "EUR")])
    seen = Scrape(registry)
    assert seen.value("cost_total", **MERCURY, currency="EUR") == 0
    assert not [s for s in seen.samples if s.name == "manometer_cost_total" and s.labels["backend"] == "ar"]
    exporter.configure(PAIRS, [("ar", "gpt-ar", "USD")])
    assert Scrape(registry).value("cost_total", **AR, currency="USD") == 0


def test_pairs_that_a_reload_brings_are_there_at_once_and_the_old_ones_keep_their_counts() -> None:
    exporter, registry = make(pairs=PAIRS[:1])
    play(exporter, DIFFUSION)
    exporter.configure(PAIRS[1:])
    seen = Scrape(registry)
    assert seen.value("requests_started_total", **AR) == 0
    assert seen.value("requests_started_total", **MERCURY) == 1
    exporter.configure(PAIRS)
    assert Scrape(registry).value("requests_started_total", **MERCURY) == 1


def test_an_exchange_that_was_refused_before_a_backend_was_chosen_belongs_to_none() -> None:
    exporter, registry = make()
    refused = Reading(id="r", started_at=1.0, outcome="refused", api="chat", streamed=False, status=401, done=0.001)
    play(exporter, refused)
    labels = {"backend": "none", "model": "none", "decoding": "none", "api": "chat", "mirror": "false"}
    assert Scrape(registry).value("requests_total", **labels, outcome="refused", code="401") == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("open", "finish")), st.integers(0, 5)), max_size=40))
def test_started_is_the_sum_of_outcomes_and_of_those_in_flight(steps: list[tuple[str, int]]) -> None:
    exporter, registry = make(pairs=PAIRS[:1])
    for step, number in steps:
        each = reading(f"id{number}", MERCURY if number % 2 else AR, done=1.0)
        if step == "open":  # the plan says mercury; a fallback may end at ar
            exporter.opened(Opening(id=each.id, started_at=0.0, api="chat", backend="mercury", model="mercury-2.5"))
        else:  # also without an opening, and twice
            exporter.finished(each)
        seen = [s for family in registry.collect() for s in family.samples]

        def total(name: str, samples: Iterable[Any] = seen) -> float:
            return sum(s.value for s in samples if s.name == PREFIX + name)

        assert total("requests_started_total") == total("requests_total") + total("requests_in_flight")
        assert all(s.value >= 0 for s in seen)


def test_series_are_capped_and_what_is_refused_is_counted_under_other() -> None:
    exporter, registry = make(series_limit=2000)
    before = sum(1 for family in registry.collect() for _ in family.samples)
    assert before < 2000
    for number in range(50):
        labels = {"backend": f"b{number}", "model": "m", "decoding": "diffusion"}
        play(exporter, reading(f"id{number}", labels, done=1.0, arrivals=Arrivals.of(arrival(0.2, 10))))
    seen = Scrape(registry)
    assert seen.sum("requests_total") == seen.sum("requests_started_total") == 50
    assert seen.sum("time_to_first_token_seconds_count") == 50
    assert seen.sum("requests_total", backend="other", model="other", outcome="ok") > 0
    assert seen.value("series_refused_total") > 0
    assert len(seen.samples) < 2000 + 150  # `other` itself comes on top, once


def test_exemplars_carry_the_request_id_and_nothing_else_and_only_in_openmetrics() -> None:
    exporter, registry = make()
    play(exporter, DIFFUSION, reading("x" * 65, AR, done=30.0, arrivals=Arrivals.of(arrival(20.0, 5))))
    seen = Scrape(registry)
    # An id too long is left out; its exchange is counted all the same.
    assert seen.exemplars("time_to_first_token_seconds") == {"0.4": "d1"}
    assert seen.exemplars("request_duration_seconds") == {"1.5": "d1"}
    exemplar = next(s.exemplar for s in seen.samples if s.exemplar and s.name.endswith("first_token_seconds_bucket"))
    assert exemplar.labels == {"request_id": "d1"}
    assert (exemplar.value, float(exemplar.timestamp)) == (0.4, 1001.3005)
    assert seen.sum("time_to_first_token_seconds_count") == 2
    assert "request_id" not in Scrape(registry, "text/plain").text


def test_operational_series() -> None:
    exporter, registry = make(
        build=("1.2.3", "3.11"),
        instances={"ar": (Decimal("2.5"), "USD")},
        memory=lambda: {"forwarder-1": 50_000_000},
        sinks=["link", "ledger"],
    )
    exporter.reloaded(1_700_000_000.0)
    seen = Scrape(registry)
    assert seen.value("build_info", version="1.2.3", python="3.11") == 1
    assert seen.value("instance_hourly_price", backend="ar", currency="USD") == 2.5
    assert seen.value("memory_bytes", process="forwarder-1") == 50_000_000
    assert seen.value("readings_dropped_total", sink="ledger") == 0
    assert seen.value("config_reload_success_timestamp_seconds") == 1_700_000_000
    exporter.dropped("ledger")
    assert Scrape(registry).value("readings_dropped_total", sink="ledger") == 1


def test_a_hostile_model_name_stays_a_value() -> None:
    exporter, registry = make()
    name = 'x"} 1\nfake_total{a="b\\'
    play(exporter, reading("h", {**AR, "model": name}, done=1.0))
    for accept in (OPENMETRICS, "text/plain"):
        seen = Scrape(registry, accept)
        assert "fake" not in {family.name for family in seen.families}
        assert seen.sum("requests_total", model=name) == 1


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
    ],
)
def test_both_formats_parse_and_name_the_same_families(accept: str, content_type: str) -> None:
    exporter, registry = make(memory=lambda: {"main": 1})
    play(exporter, DIFFUSION, STEADY, WHOLE)
    seen = Scrape(registry, accept)
    assert seen.content_type.startswith(content_type)
    names = {family.name.removesuffix("_total") for family in seen.families}
    assert names == {metric.full_name.removesuffix("_total") for metric in METRICS}
    assert "_created" not in seen.text


def test_scrapes_from_other_threads_see_whole_readings() -> None:
    exporter, registry = make()
    torn, stop = [], threading.Event()

    def scrape() -> None:
        while not stop.is_set():
            samples = [s for family in registry.collect() for s in family.samples]
            started = sum(s.value for s in samples if s.name == PREFIX + "requests_started_total")
            ended = sum(
                s.value for s in samples if s.name in (PREFIX + "requests_total", PREFIX + "requests_in_flight")
            )
            if started != ended:
                torn.append((started, ended))

    scrapers = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in scrapers:
        thread.start()
    for _ in range(300):
        play(exporter, DIFFUSION, STEADY, WHOLE)
    stop.set()
    for thread in scrapers:
        thread.join()
    assert torn == []
    assert Scrape(registry).sum("requests_total") == 900


def test_two_exporters_cannot_share_a_registry_by_accident() -> None:
    _, registry = make()
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Exporter(registry)


def test_promtool_has_nothing_to_say_about_the_exposition() -> None:
    if which("promtool") is None:
        missing("promtool is not installed (Debian: apt-get install --no-install-recommends prometheus)")
    exporter, registry = make(memory=lambda: {"main": 1}, instances={"ar": (Decimal(1), "USD")})
    exporter.reloaded(1.0)
    play(exporter, DIFFUSION, STEADY, WHOLE)
    _, body = render(registry, "text/plain")
    lint = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    said = (lint.stdout + lint.stderr).decode()
    assert said == "", said
