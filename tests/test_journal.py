"""The log: one JSON line for each exchange, without bodies and secrets, and no reason to stop."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from proxy.journal import Journal
from proxy.recorder import Opening
from tests import wire


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_exchange_is_one_line_with_its_numbers() -> None:
    out = io.StringIO()
    journal = Journal(out)
    journal.opened(Opening(id="r", started_at=0.0, api="chat"))
    reading = wire.read(
        (1.25, wire.text("a secret answer")), (2.0, wire.stop() + wire.usage(5, 7) + wire.DONE), keep_text=True
    )
    journal.finished(reading)
    (line,) = lines(out)
    assert line["event"] == "exchange"
    assert (line["id"], line["outcome"], line["status"], line["ttft_ms"]) == ("r", "ok", 200, 1250.0)
    assert (line["completion_tokens"], line["cost"], line["fault"]) == (7, None, None)
    assert "secret answer" not in out.getvalue()


def test_what_is_not_known_is_null_and_costs_are_exact() -> None:
    out = io.StringIO()
    Journal(out).finished(replace(wire.read(status=500), cost=Decimal("0.00000012")))
    (line,) = lines(out)
    assert (line["ttft_ms"], line["completion_tokens"], line["cost"]) == (None, None, "0.00000012")
    assert (line["outcome"], line["fault"]) == ("backend_error", "http_500")


def test_lines_of_a_batch_are_written_together_and_before_any_other() -> None:
    out, due = io.StringIO(), list[Callable[[], None]]()
    journal = Journal(out, soon=due.append)
    for name in ("a", "b"):
        journal.finished(replace(wire.read(), id=name))
    assert (out.getvalue(), len(due)) == ("", 1)
    due.pop()()
    assert [line["id"] for line in lines(out)] == ["a", "b"]
    journal.finished(replace(wire.read(), id="c"))
    journal.say("stopped")
    assert [line["event"] for line in lines(out)[2:]] == ["exchange", "stopped"]
    due.pop()()  # what was due is done already
    assert len(lines(out)) == 4


def test_lines_of_exchanges_can_be_left_out_and_others_can_not() -> None:
    out = io.StringIO()
    journal = Journal(out)
    journal.exchanges = False
    journal.finished(wire.read())
    journal.say("reloaded")
    assert [line["event"] for line in lines(out)] == ["reloaded"]


def test_no_name_that_a_client_sends_can_break_a_line() -> None:
    out = io.StringIO()
    Journal(out).say("exchange", model='a\n{"event": "forged"}\u2028\ud800')
    assert len(out.getvalue().split("\n")) == 2
    assert lines(out)[0]["event"] == "exchange"


def test_a_reader_that_has_gone_stops_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    Journal(Gone()).say("listening")
    closed = io.StringIO()
    closed.close()
    Journal(closed).say("listening")
