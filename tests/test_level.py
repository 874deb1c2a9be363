from dataclasses import replace
from decimal import Decimal
from math import inf

import pytest

from loadgen.analysis.doubt import Health
from loadgen.analysis.level import Terms, level, meets
from proxy.meter.usage import NOTHING, Usage
from tests.readings import failure, stream


def loop(n, **facts):
    """One client, n answers one after the other."""
    return [stream(start=1000.0 + i * 0.34, **facts) for i in range(n)]


def test_a_level_reports_what_a_block_stream_truly_did():
    found = level(loop(100), backend="mercury", concurrency=1)
    assert (found.ok, found.failed, found.valid) == (100, 0, True)
    assert found.metrics["ttft"].p50 == pytest.approx(0.2)
    assert found.metrics["decode_rate"].p50 == pytest.approx(56 / 0.14)  # not 63 / 0.14
    assert found.metrics["burst"].p50 == 8
    assert found.throughput == pytest.approx(6400 / 34.0)
    assert found.warnings == ()


def test_latencies_are_of_ok_exchanges_and_failures_have_a_row_of_their_own():
    found = level([*loop(90), *(failure(start=1000.0 + i) for i in range(10))], backend="b", concurrency=1)
    assert found.outcomes == {"ok": 90, "backend_error": 10}
    assert found.metrics["e2e"].n == 90
    assert (found.adjusted["e2e"].n, found.adjusted["e2e"].p99) == (100, inf)
    assert "10 of 100 requests failed" in found.warnings[0]
    assert found.json()["adjusted"]["e2e"]["p99"] is None


def test_partial_tokens_of_failures_are_told_apart():
    found = level([*loop(5), stream(start=1010.0, outcome="truncated")], backend="b", concurrency=1)
    assert (found.completion_tokens, found.failed_tokens) == (320, 64)


def test_one_burst_has_no_decode_rate_and_the_level_says_so():
    found = level(loop(3, bursts=1, size=64), backend="b", concurrency=1)
    assert found.metrics["decode_rate"] == (None, None, None, None, 0)
    assert found.metrics["e2e_rate"].p50 == pytest.approx(320)
    assert "3 of 3 answers came in one burst: their decode rate is not defined" in found.warnings


def test_goodput_counts_exchanges_within_every_objective():
    readings = [stream(start=1000.0), stream(start=1001.0, ttft=0.6), failure(start=1002.0, done=1.0)]
    found = level(readings, backend="b", terms=Terms(slos={"ttft": 0.5, "e2e": 3}))
    assert found.goodput == pytest.approx(1 / 3.0)
    assert found.goodput_share == pytest.approx(1 / 3)


def test_an_undefined_metric_does_not_meet_its_objective():
    assert meets(stream(), {"decode_rate": 399})
    assert not meets(stream(), {"decode_rate": 401})
    assert not meets(stream(bursts=1), {"decode_rate": 1})


def test_without_objectives_there_is_no_goodput():
    assert level(loop(2), backend="b").goodput is None


def test_a_token_price_is_the_sum_of_costs_over_the_sum_of_tokens():
    readings = [stream(start=1000.0 + i, cost=Decimal("0.000048")) for i in range(4)]
    found = level(readings, backend="b", concurrency=1)
    assert found.cost == Decimal("0.000192")
    assert found.cost_per_million == pytest.approx(0.75)


def test_an_instance_price_is_divided_by_the_tokens_of_an_hour():
    found = level(loop(10), backend="b", terms=Terms(instances=(Decimal("2.5"), Decimal("4"))))
    assert found.instance_cost["2.5"] == pytest.approx(2.5 / (found.throughput * 3600) * 1e6)
    assert found.instance_cost["4"] == pytest.approx(found.instance_cost["2.5"] * 1.6)


def test_a_model_without_a_price_costs_nothing_known():
    found = level(loop(2), backend="b")
    assert (found.cost, found.cost_per_million, found.instance_cost) == (None, None, {})


def test_tokens_nobody_reported_are_estimated_and_flagged():
    found = level(loop(4, tokens=NOTHING, usage_source="none"), backend="b")
    assert (found.usage_source, found.completion_tokens) == ("estimated", 256)
    assert "no usage was reported: tokens are estimated by characters" in found.warnings


def test_usage_of_some_answers_only_is_called_mixed():
    found = level([*loop(1), *loop(1, tokens=NOTHING)], backend="b")
    assert found.usage_source == "mixed"


def test_a_client_that_was_late_itself_makes_the_level_invalid():
    found = level(loop(100), backend="b", health=Health(loop_lag=0.040, cpu=0.5))
    assert not found.valid
    assert "the client was the bottleneck: its event loop was 40 ms late at P99" in found.warnings


def test_lateness_that_is_small_beside_the_first_token_does_no_harm():
    late = Health(loop_lag=0.040)
    assert level(loop(100, ttft=1.0), backend="b", health=late).valid
    assert not level(loop(100, ttft=0.7), backend="b", health=late).valid


def test_a_client_that_used_up_its_core_makes_the_level_invalid():
    assert not level(loop(100), backend="b", health=Health(loop_lag=0.001, cpu=0.97)).valid
    assert level(loop(100), backend="b", health=Health(loop_lag=0.001, cpu=0.5)).valid


def test_a_schedule_that_was_not_kept_makes_an_open_loop_invalid():
    late = [replace(r, intended=-0.3) for r in loop(100)]
    found = level(late, backend="b", rate=10)
    assert not found.valid
    assert "the client fell behind its schedule: 300 ms at P95" in found.warnings


def test_latencies_from_the_schedule_include_the_lateness():
    found = level([replace(r, intended=-0.01) for r in loop(100)], backend="b", rate=10)
    assert found.metrics["ttft_intended"].p50 == pytest.approx(0.21)
    assert found.metrics["lag"].p50 == 0.01
    assert found.valid


def test_a_level_without_a_single_answer_is_not_valid():
    assert not level([failure()], backend="b").valid
    empty = level([], backend="b")
    assert (empty.valid, empty.throughput, empty.usage_source) == (False, None, "none")


def test_lengths_that_drift_are_told():
    short = Usage(prompt=1, completion=20)
    found = level([*loop(9), *loop(1, tokens=short)], backend="b", terms=Terms(max_tokens=64))
    assert "1 of 10 answers end before max_tokens = 64 (60 to 64 tokens): lengths drift" in found.warnings


def test_a_server_that_ignores_max_tokens_is_told():
    found = level(loop(4), backend="b", terms=Terms(max_tokens=32))
    assert "4 of 4 answers are longer than max_tokens = 32: the server ignores it" in found.warnings


def test_what_the_backend_warns_of_is_passed_on_in_one_line():
    found = level(loop(2, warning="temperature\nwas reset to 0.75"), backend="b")
    assert "the backend warns: temperature was reset to 0.75" in found.warnings


def test_the_json_of_a_level_is_json():
    import json

    text = json.dumps(level([*loop(2), failure()], backend="b", concurrency=1).json(), allow_nan=False)
    assert json.loads(text)["ttft"]["n"] == 2
