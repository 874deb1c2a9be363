"""Transcripts: what was read when, and the reading that follows."""

from __future__ import annotations

import gzip
import json
import zlib
from decimal import Decimal
from typing import Any

import pytest

from proxy.meter import Fault, Meter, Price, Usage
from tests.wire import DONE, body, chunk, event, read, say, stop, text, usage

END = stop() + usage(5, 4) + DONE
ROLE = chunk(say(role="assistant", content=""))


def test_a_stream() -> None:
    reading = read((0.1, ROLE), (0.4, text("Hel")), (0.5, text("lo") + text(" you")), (0.9, END), end=1.0)
    assert (reading.outcome, reading.streamed, reading.status) == ("ok", True, 200)
    assert reading.ttft == 0.4
    assert [(a.at, a.events, a.answer) for a in reading.arrivals] == [(0.4, 1, 3), (0.5, 2, 6)]
    assert (reading.data_events, reading.parse_errors) == (6, 0), "[DONE] is none"
    assert reading.tokens == Usage(prompt=5, completion=4, total=9)
    assert (reading.usage_source, reading.usage_final) == ("reported", True)
    assert (reading.finish_reasons, reading.choices, reading.done_seen) == (("stop",), 1, True)
    assert (reading.head, reading.ended, reading.e2e) == (0.0, 0.9, 1.0)
    assert (reading.answered_model, reading.notes, reading.text) == ("m", (), None)


def test_times_count_from_received() -> None:
    meter = Meter(received=100.0)
    meter.head(100.25, 200, "text/event-stream")
    meter.feed(text("a"), 100.5)
    meter.feed(END, 101.0)
    reading = meter.finish(101.5, id="r", started_at=7.0, ended=101.25)
    assert (reading.ttfb, reading.ttft, reading.ended, reading.e2e) == (0.25, 0.5, 1.0, 1.5)


def test_facts_of_the_exchange_are_kept_as_given() -> None:
    meter = Meter()
    reading = meter.finish(1.0, id="r", started_at=7.0, outcome="refused", status=401, backend="b", notes=("n",))
    assert (reading.outcome, reading.status, reading.backend, reading.notes) == ("refused", 401, "b", ("n",))


def test_reasoning_is_output_but_no_answer() -> None:
    reading = read(
        (0.1, chunk(say(reasoning_content="Think"))),
        (0.3, chunk(say(reasoning=" more"))),
        (0.5, text("\n\n")),
        (0.6, END),
    )
    assert (reading.ttft, reading.ttfa) == (0.1, 0.5)
    assert [(a.reasoning, a.answer) for a in reading.arrivals] == [(5, 0), (5, 0), (0, 2)]


def test_a_tool_call_is_output_and_its_name_counts_once() -> None:
    def call(arguments: str, name: str | None = "get") -> bytes:
        return chunk(say(tool_calls=[{"index": 0, "function": {"name": name, "arguments": arguments}}]))

    reading = read(
        (0.1, ROLE), (0.2, call("")), (0.3, call('{"a"')), (0.4, call(": 1}", None)), (0.5, call("")), (0.6, END)
    )
    assert (reading.ttft, reading.ttfa) == (0.2, 0.2)
    assert [(a.at, a.tool) for a in reading.arrivals] == [(0.2, 3), (0.3, 4), (0.4, 4)]


def test_two_choices_are_one_exchange() -> None:
    reading = read(
        (0.1, chunk(say("A", index=0)) + chunk(say("B", index=1))),
        (0.2, chunk(say(index=0, finish="stop")) + chunk(say("BB", index=1))),
        (0.3, chunk(say("B", index=1))),
        (0.4, chunk(say(index=1, finish="length")) + usage(5, 4) + DONE),
    )
    assert (reading.outcome, reading.choices, reading.finish_reasons) == ("ok", 2, ("stop", "length"))
    assert (reading.ttft, reading.arrivals[-1].at, reading.tokens.completion) == (0.1, 0.3, 4)


def test_the_first_finish_does_not_end_two_choices() -> None:
    reading = read(chunk(say("A", index=0)) + chunk(say("B", index=1)), chunk(say(index=0, finish="stop")))
    assert reading.outcome == "truncated"


# usage


def running(content: str, completion: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": 20, "completion_tokens": completion, "total_tokens": 20 + completion}
    return chunk(say(content, **more), usage=counts)


def test_running_totals_tell_the_tokens_of_each_arrival() -> None:
    reading = read(running("", 0), running("a", 1), running("b c", 3), running("d", 4, finish="stop") + DONE)
    assert reading.tokens == Usage(prompt=20, completion=4, total=24)
    assert [a.tokens for a in reading.arrivals] == [1, 2, 1]
    assert reading.bursts == [1, 2, 1]


def test_listed_tokens_and_a_total_at_the_end_do_not_count_twice() -> None:
    def listed(content: str, tokens: int, **more: Any) -> bytes:
        return chunk(say(content) | {"logprobs": {"content": [{"token": "x"}] * tokens}}, **more)

    reading = read(listed("ab", 2), listed("c", 1), listed("d", 1, usage={"completion_tokens": 4}), stop() + DONE)
    assert [a.tokens for a in reading.arrivals] == [2, 1, 1]


def test_running_totals_of_several_choices_are_not_taken_for_those_of_all() -> None:
    reading = read(running("a", 1), running("b", 1, index=1), running("a", 2), running("b", 2, index=1))
    assert [a.tokens for a in reading.arrivals] == [1, None, None, None]


def test_usage_before_a_cut_is_kept_and_not_final() -> None:
    reading = read(running("", 0) + running("a b", 2), outcome="truncated")
    assert (reading.outcome, reading.tokens.completion, reading.usage_final) == ("truncated", 2, False)
    reading = read(chunk(say("a", index=1)), running("b", 2, finish="stop"), outcome="truncated")
    assert not reading.usage_final, "the other choice was still at it"
    assert read(text("a"), stop() + usage(1, 1), outcome="truncated").usage_final


def test_no_usage_is_none_and_the_estimate_is_kept_apart() -> None:
    reading = read(text("one two three"), stop() + DONE)
    assert (reading.usage_source, reading.tokens, reading.usage_final) == ("none", Usage(), False)
    assert reading.estimated_completion == 4
    assert reading.e2e_rate is reading.decode_rate is reading.cost is None


def test_a_canvas_is_not_taken_for_the_text() -> None:
    reading = read(
        body("short", usage={"prompt_tokens": 9, "completion_tokens": 128}), kind="application/json", canvas=True
    )
    assert (reading.canvas, reading.tokens) == (128, Usage(prompt=9))
    assert reading.e2e_rate is None
    assert reading.estimated_completion == 2


def test_the_price_in_force_gives_the_cost() -> None:
    meter = Meter()
    meter.head(0.0, 200, "text/event-stream")
    meter.feed(text("a") + END, 1.0)
    price = Price(model="m", input=Decimal(1), output=Decimal(2), currency="EUR")
    reading = meter.finish(1.0, id="r", started_at=0.0, price=price)
    assert (reading.cost, reading.currency) == (Decimal("0.000013"), "EUR")


# replace streams


def frame(content: str, **more: Any) -> bytes:
    return chunk(say(content, **more), diffusion_meta={"diffusion_content": True})


def test_snapshots_replace_each_other() -> None:
    reading = read(
        (0.1, frame("xx qv")), (0.2, frame("Th qv")), (0.3, frame("The sky")), (0.4, frame("", finish="stop") + END),
        keep_text=True,
    )  # fmt: skip
    assert reading.text == "The sky"
    assert reading.ttft == reading.ttfa == 0.1, "noise is output; first_stable says when there was more"
    assert [(a.answer, a.replace) for a in reading.arrivals] == [(0, True), (2, True), (5, True)]
    assert reading.stability == (0.3, 0.3, 0.3, 0.2, 10 / 7)
    assert reading.bursts == pytest.approx([0, 4 * 2 / 7, 4 * 5 / 7])


def test_without_a_marker_the_request_decides() -> None:
    assert read(text("ab"), text("cd"), END, replace=True, keep_text=True).text == "cd"
    assert read(text("ab"), text("cd"), END, replace=False, keep_text=True).text == "abcd"


# answers that are no stream of events


def test_a_json_answer_is_one_arrival_at_its_end() -> None:
    answer = body("Hello", usage={"prompt_tokens": 11, "completion_tokens": 4})
    for kind in ("application/json", "application/json; charset=utf-8", "", "text/plain"):
        for asked in (True, False):
            reading = read((0.1, b"\n"), (0.2, answer[:40]), (0.3, answer[40:]), kind=kind, asked_stream=asked, end=0.3)
            assert (reading.outcome, reading.streamed, reading.finish_reasons) == ("ok", False, ("stop",))
            assert (reading.ttft, reading.e2e, reading.tokens.completion) == (0.3, 0.3, 4)
            assert [(a.events, a.answer) for a in reading.arrivals] == [(1, 5)]
            assert (reading.data_events, reading.done_seen, reading.generation) == (0, False, 0.0)


def test_half_a_json_answer_is_nothing() -> None:
    reading = read(body("Hello")[:-20], kind="application/json", outcome="truncated")
    assert (reading.outcome, reading.ttft, reading.usage_source) == ("truncated", None, "none")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/octet-stream", "application/json"])
def test_events_under_another_name_are_read(kind: str) -> None:
    reading = read(b"\xef", b"\xbb\xbf\n", b"d", b"ata: ", text("a")[6:], END, kind=kind)
    assert (reading.outcome, reading.streamed, reading.ttft) == ("ok", True, 5.0)


def test_embeddings_tell_usage() -> None:
    answer = json.dumps({"data": [], "model": "e", "usage": {"prompt_tokens": 8, "total_tokens": 8}}).encode()
    reading = read(answer, kind="application/json", api="embeddings", asked_stream=False)
    assert (reading.outcome, reading.tokens, reading.ttft) == ("ok", Usage(prompt=8, total=8), None)


def test_other_apis_are_passed_and_timed() -> None:
    reading = read(b'{"text":"hello"}', kind="application/json", api="other", asked_stream=False)
    assert (reading.outcome, reading.ttft, reading.e2e, reading.usage_source) == ("ok", None, 9.0, "none")


def test_a_response_ends_without_done() -> None:
    def said(kind: str, **members: Any) -> bytes:
        return event({"type": kind} | members, kind)

    response = {"model": "m", "status": "completed", "usage": {"input_tokens": 3, "output_tokens": 2}}
    reading = read(
        said("response.created", response={"model": "m", "status": "in_progress"}),
        said("response.output_text.delta", delta="Hel"),
        said("response.output_text.delta", delta="lo"),
        said("response.output_text.done", text="Hello"),
        said("response.completed", response=response),
        api="responses",
        keep_text=True,
    )
    assert (reading.outcome, reading.done_seen, reading.notes, reading.text) == ("ok", True, (), "Hello")
    assert (reading.ttft, len(reading.arrivals), reading.ended) == (2.0, 2, 5.0)
    assert reading.tokens == Usage(prompt=3, completion=2)


# outcomes


@pytest.mark.parametrize(
    "reads, outcome",
    [
        ([], "empty"),
        ([b": hi\n\n"], "empty"),
        ([DONE], "empty"),
        ([ROLE, stop() + DONE], "empty"),
        ([usage(3, 0) + DONE], "ok"),
        ([ROLE], "truncated"),
        ([text("a")], "truncated"),
        ([text("a"), b'data: {"id"'], "truncated"),
        ([b'data: {"id"'], "truncated"),
        ([text("a"), stop()], "ok"),
        ([text("a"), b"data: [DONE]"], "ok"),
        ([text("a"), b"data: [DONE]\n"], "ok"),
        ([text("a"), b"data: {broken\n\n", END], "bad_stream"),
        ([text("a"), b"data: \xff\n\n", END], "bad_stream"),
        ([b"<html>"], "bad_stream"),
        ([body("a")], "bad_stream"),
        ([text("a"), event({"error": {"message": "busy"}})], "backend_error"),
        ([text("a"), event({"error": {"message": "busy"}}), DONE], "backend_error"),
        ([text("a"), b"event: error\ndata: busy\n\n"], "backend_error"),
        ([text("a"), stop("error"), DONE], "backend_error"),
        ([event({"type": "response.failed", "response": {"status": "failed"}})], "backend_error"),
        ([text("a"), b"data:\n\n", b"event: ping\ndata: x\n\n", END], "ok"),
    ],
)
def test_the_outcome_comes_from_how_the_stream_ended(reads: list[bytes], outcome: str) -> None:
    assert read(*reads).outcome == outcome


@pytest.mark.parametrize(
    "answer, kind, outcome",
    [
        (b"<html>Just a moment...</html>", "text/html; charset=utf-8", "bad_stream"),
        (b"Just a moment", "text/plain", "bad_stream"),
        (b"{", "application/json", "bad_stream"),
        (b"[]", "application/json", "bad_stream"),
        (b"", "application/json", "empty"),
        (b"{}", "application/json", "empty"),
        (b'{"error":"busy"}', "application/json", "backend_error"),
    ],
)
def test_the_outcome_of_what_is_no_stream(answer: bytes, kind: str, outcome: str) -> None:
    assert read(answer, kind=kind).outcome == outcome


@pytest.mark.parametrize("status", [307, 400, 404, 429, 500, 503])
def test_a_refusal_is_a_backend_error_with_its_own_words(status: int) -> None:
    reading = read(b'{"error":{"message":"no","type":"t","code":"c"}}', status=status, kind="application/json")
    assert (reading.outcome, reading.status, reading.fault) == ("backend_error", status, Fault("t", "no", "c"))


@pytest.mark.parametrize(
    "answer, coding",
    [(b"moved", ""), (b"", ""), (b"x" * (2 << 20), ""), (b"\x0b\x02\x80x", "br"), (b"no gzip", "gzip")],
)
def test_a_refusal_that_cannot_be_read_is_called_by_its_number(answer: bytes, coding: str) -> None:
    reading = read(answer, status=502, kind="text/html", coding=coding)
    assert reading.fault == Fault("http_502")


def test_an_error_page_under_200_is_named() -> None:
    assert read(b"<html>", kind="text/html").fault == Fault("unexpected_content_type", "text/html")


def test_what_came_before_a_failure_stays() -> None:
    fault = Fault("upstream_reset", "the backend cut the connection")
    meter = Meter()
    meter.head(0.0, 200, "text/event-stream")
    meter.feed(text("one"), 0.5)
    reading = meter.finish(1.0, id="r", started_at=0.0, outcome="truncated", fault=fault)
    assert (reading.outcome, reading.fault, reading.ttft, len(reading.arrivals)) == ("truncated", fault, 0.5, 1)


@pytest.mark.parametrize("late", ["client_gone", "truncated", "timeout_idle", "timeout_total", "timeout_first_output"])
def test_a_fault_after_the_end_of_the_answer_takes_nothing_from_it(late: str) -> None:
    reading = read(text("a") + END, outcome=late)
    assert (reading.outcome, reading.fault, reading.notes) == ("ok", None, (f"{late} after the end of the answer",))


def test_a_finish_without_done_is_ok_and_noted() -> None:
    reading = read(text("a"), stop())
    assert (reading.outcome, reading.done_seen) == ("ok", False)
    assert reading.notes == ("no [DONE] after the finish_reason",)


@pytest.mark.parametrize(
    "reads, kind, note",
    [
        ([b"\xef", b"\xbb\xbf" + text("a"), END], "text/event-stream", "begins with a byte-order mark"),
        ([text("a"), b"data:\n\n", END], "text/event-stream", "has an event without data"),
        ([body("a")], "application/json", "a JSON body where a stream was asked"),
    ],
)
def test_what_the_usual_clients_stumble_over_is_ok_and_noted(reads: list[bytes], kind: str, note: str) -> None:
    reading = read(*reads, kind=kind)
    assert reading.outcome == "ok"
    assert [noted.partition(":")[0] for noted in reading.notes] == [note]
    assert read(body("a"), kind="application/json", asked_stream=False).notes == ()


def test_what_follows_done_is_no_output() -> None:
    reading = read((1.0, text("a") + END), (2.0, text("ghost")), keep_text=True)
    assert (reading.text, len(reading.arrivals), reading.ended) == ("a", 1, 1.0)


def test_the_terminal_time_is_told_while_it_runs() -> None:
    meter = Meter()
    meter.head(0.0, 200, "text/event-stream")
    meter.feed(ROLE, 0.1)
    assert not meter.output
    meter.feed(text("a"), 0.2)
    assert meter.output and meter.terminal_at is None
    meter.feed(END, 0.3)
    assert meter.terminal_at == 0.3


# what is strange, long or compressed


def test_a_warning_and_the_first_name_of_the_model_are_kept() -> None:
    reading = read(
        chunk(model="", warning=None), text("a", warning="temperature was reset"), text("b", model="late"), END
    )
    assert (reading.warning, reading.answered_model) == ("temperature was reset", "m")


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "deflate"])
def test_a_compressed_stream_is_read(coding: str) -> None:
    stream = text("Hello") + text(" you") + END
    packed = zlib.compress(stream) if coding == "deflate" else gzip.compress(stream)
    reading = read(packed[:30], packed[30:], coding=coding, keep_text=True)
    assert (reading.outcome, reading.text, reading.tokens.completion) == ("ok", "Hello you", 4)


def test_a_read_of_a_compressed_stream_that_looks_like_an_event_is_unpacked_all_the_same() -> None:
    """gzip may store bytes as they are; a read can be just those, and the unpacker must see them."""
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    first = packer.compress(text("Hello")) + packer.flush(zlib.Z_SYNC_FLUSH)
    second = packer.compress(text(" you")) + packer.flush(zlib.Z_SYNC_FLUSH)
    start = second.index(text(" you"))
    stored = second[start : start + len(text(" you"))]
    assert stored == text(" you")
    rest = second[start + len(stored) :] + packer.compress(END) + packer.flush()
    reading = read(first + second[:start], stored, rest, coding="gzip", keep_text=True)
    assert (reading.outcome, reading.text, reading.tokens.completion) == ("ok", "Hello you", 4)


def test_broken_compression_is_a_bad_stream() -> None:
    packed = gzip.compress(text("Hello") + END)
    reading = read(packed[:20], b"\xff" * 50, coding="gzip")
    assert (reading.outcome, reading.notes) == ("bad_stream", ("not read on: broken compression",))


def test_a_read_that_unpacks_to_more_than_the_limit_is_not_read() -> None:
    reading = read(gzip.compress(b": x\n" * 10_000), coding="gzip", limit=1000)
    assert reading.notes == ("not read on: a read unpacks to more than the limit",)


def test_a_coding_that_nobody_here_knows_is_passed_and_noted() -> None:
    for kind, streamed in (("text/event-stream", True), ("application/json", False)):
        reading = read(b"\x1b\xee", kind=kind, coding="br", asked_stream=False)
        assert (reading.outcome, reading.streamed, reading.ttft) == ("ok", streamed, None)
        assert reading.notes == ("not read: content-encoding br",)
        assert reading.tokens == Usage()


def test_an_event_over_the_limit_ends_the_reading_and_not_the_exchange() -> None:
    reading = read(text("a") + b"data: " + b"x" * 1000, text("b"), limit=500)
    assert (reading.outcome, len(reading.arrivals)) == ("ok", 1)
    assert reading.notes == ("not read on: an event is longer than the limit",)


def test_a_body_over_the_limit_is_not_kept() -> None:
    reading = read(body("x" * 1000), kind="application/json", limit=500)
    assert (reading.outcome, reading.ttft, reading.notes) == ("ok", None, ("not read: the answer is too long",))


def test_more_arrivals_than_the_cap_are_merged_and_noted() -> None:
    reading = read(*((0.01 * n, text("word")) for n in range(100)), (1.0, END), cap=10)
    assert len(reading.arrivals) <= 10
    assert sum(reading.arrivals.column("answer")) == 400
    assert (reading.ttft, reading.arrivals[-1].at) == (0.0, 0.99)
    assert reading.notes == ("arrivals merged pairwise: more came than the meter keeps",)


def test_lone_surrogates_do_no_harm() -> None:
    torn = b'data: {"model":"\\ud800","choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
    rest = torn.replace(b"\\ud83d", b"\\ude00")
    reading = read(torn, rest, END, keep_text=True)
    assert (reading.text, reading.answered_model) == ("😀", "\ufffd")


def test_readable_says_whether_the_bytes_on_the_wire_are_the_text() -> None:
    plain, packed, unknown, page = Meter(), Meter(), Meter(), Meter()
    plain.head(0.0, 200, "text/event-stream")
    packed.head(0.0, 200, "text/event-stream", "gzip")
    unknown.head(0.0, 200, "text/event-stream", "br")
    page.head(0.0, 200, "text/html")
    assert [meter.readable for meter in (plain, packed, unknown, page)] == [True, False, False, False]
