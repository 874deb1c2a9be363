"""The backend leg: answers as transcripts (whole, byte by byte, with trailing data), and every fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.origin import Origin
from proxy.upstream import HEAD_LIMIT, Call, Connection, Pool, Request, Timeouts, UpstreamFault
from tests.stage import LAST, Peer, events, head, piece, replies, whole

POST = Request(b"POST", b"/v1/chat/completions", [(b"content-type", b"application/json")], b'{"a":1}')
GET = Request(b"GET", b"/v1/models", [])
HEAD = Request(b"HEAD", b"/v1/models", [])


class Wire:
    """A transport that goes nowhere: the test is the network."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.reading = True
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Nowhere:
    """An origin whose connections are wires."""

    host, port, host_header = "backend", 80, b"backend"

    def __init__(self) -> None:
        self.opened: list[tuple[Connection, Wire]] = []
        self.refuses: Exception | None = None

    async def connect(self, factory: Callable[[], Connection]) -> Connection:
        if self.refuses is not None:
            raise self.refuses
        connection, wire = factory(), Wire()
        connection.connection_made(wire)  # type: ignore[arg-type]
        self.opened.append((connection, wire))
        return connection


class Heard:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.status = 0
        self.heads = 0
        self.headers: dict[bytes, bytes] = {}
        self.chunks: list[tuple[float, bytes]] = []
        self.end = ""  # "end", or the fault's outcome
        self.fault: UpstreamFault | None = None
        self.over = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.chunks)

    def on_head(self, at: float, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        assert not self.end
        self.heads += 1
        self.status, self.headers = status, {name.lower(): value for name, value in headers}

    def on_chunk(self, at: float, data: bytes) -> None:
        assert self.status and not self.end and data
        self.chunks.append((at, data))

    def on_end(self, at: float) -> None:
        assert not self.end
        self.end = "end"
        self.over.set()

    def on_fault(self, at: float, fault: UpstreamFault) -> None:
        assert not self.end
        self.end, self.fault = fault.outcome, fault
        assert fault.message and "\n" not in fault.message
        self.over.set()

    async def whole(self) -> Heard:
        await asyncio.wait_for(self.over.wait(), 10)
        return self


class Bench:
    """A pool over wires, with a clock that the test moves."""

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.origin = Nowhere()
        self.pool = Pool(self.origin, Timeouts(), clock=lambda: self.now, **options)  # type: ignore[arg-type]

    async def send(self, request: Request = POST) -> tuple[Heard, Connection, Wire, Call]:
        heard = Heard()
        call = await self.pool.send(request, heard)
        connection = call._connection
        assert connection is not None
        return heard, connection, connection._transport, call  # type: ignore[return-value]


# -- answers as transcripts ------------------------------------------------------------------------

# name -> (bytes, method, status, body, whether the connection may be used again)
ANSWERS: dict[str, tuple[bytes, Request, int, bytes, bool]] = {
    "a known length": (whole(b"hello"), POST, 200, b"hello", True),
    "an empty body": (whole(b""), POST, 200, b"", True),
    "chunks": (events() + piece(b"a") + piece(b"bc") + LAST, POST, 200, b"abc", True),
    "a chunk with an extension": (events() + b"2;x=y\r\nhi\r\n" + LAST, POST, 200, b"hi", True),
    "trailers": (events() + piece(b"a") + b"0\r\nx-sum: 1\r\n\r\n", POST, 200, b"a", True),
    "Connection: close": (whole(b"x", connection="close"), POST, 200, b"x", False),
    "no content": (head(204), POST, 204, b"", True),
    "not modified, with a length": (head(304, content_length=5), GET, 304, b"", True),
    "an answer to HEAD": (head(200, content_length=5), HEAD, 200, b"", False),
    "an error": (whole(b'{"error":{}}', 429, retry_after=3), POST, 429, b'{"error":{}}', True),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + whole(b"x"), POST, 200, b"x", True),
    "early hints first": (b"HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\n" + whole(b"x"), POST, 200, b"x", True),
    "HTTP/1.0 with a length": (whole(b"x").replace(b"HTTP/1.1", b"HTTP/1.0"), POST, 200, b"x", False),
}


@pytest.mark.parametrize("answer, request_, status, body, again", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_is_read_whole_byte_by_byte_and_with_trailing_data(
    answer: bytes, request_: Request, status: int, body: bytes, again: bool
) -> None:
    for reads in ([answer], [bytes([byte]) for byte in answer], [answer + b"HTTP/1.1 500 No\r\n"], [answer + b"junk"]):
        bench = Bench()
        heard, connection, wire, _ = await bench.send(request_)
        for read in reads:
            connection.data_received(read)
        assert (heard.heads, heard.status, heard.body, heard.end) == (1, status, body, "end")
        assert b"link" not in heard.headers
        left_over = not answer.startswith(reads[0])
        assert wire.closed is not (again and not left_over), reads
        await bench.pool.close()


@given(cuts=st.lists(st.integers(0, 200), max_size=8), name=st.sampled_from(sorted(ANSWERS)))
def test_every_slicing_gives_the_same_answer(cuts: list[int], name: str) -> None:
    answer, request, status, body, again = ANSWERS[name]

    async def read() -> None:
        bench = Bench()
        heard, connection, wire, _ = await bench.send(request)
        edges = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
        for start, stop in pairwise(edges):
            if start < stop:
                connection.data_received(answer[start:stop])
        assert (heard.heads, heard.status, heard.body, heard.end) == (1, status, body, "end")
        assert wire.closed is not again
        await bench.pool.close()

    asyncio.run(read())


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    bench = Bench()
    heard, connection, _, _ = await bench.send()
    connection.data_received(head(200, content_type="text/plain") + b"so far")
    assert heard.end == ""
    connection.connection_lost(None)
    assert (heard.body, heard.end) == (b"so far", "end")
    assert bench.pool.open == 0


async def test_every_read_is_one_chunk_with_its_own_time() -> None:
    bench = Bench()
    heard, connection, _, call = await bench.send()
    assert call.sent == 100.0
    for at, data in ((101.0, events()), (102.0, piece(b"a") + piece(b"b")), (103.0, piece(b"c") + LAST)):
        bench.now = at
        connection.data_received(data)
    assert heard.chunks == [(102.0, b"ab"), (103.0, b"c")]
    await bench.pool.close()


async def test_the_request_is_written_once_with_its_host_and_length() -> None:
    bench = Bench()
    _, _, wire, _ = await bench.send()
    assert wire.sent == (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: backend\r\ncontent-type: application/json\r\n"
        b'content-length: 7\r\n\r\n{"a":1}'
    )
    _, _, wire, _ = await bench.send(GET)
    assert wire.sent == b"GET /v1/models HTTP/1.1\r\nhost: backend\r\n\r\n"
    big = Request(b"POST", b"/v1/files", [], b"x" * 200_000)
    _, _, wire, _ = await bench.send(big)
    assert wire.sent.endswith(b"content-length: 200000\r\n\r\n" + b"x" * 200_000)
    await bench.pool.close()


# -- faults ----------------------------------------------------------------------------------------

# name -> (bytes before the connection ends, or is found to be broken; outcome; code)
FAULTS: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "backend_error", "upstream_disconnected"),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-", "backend_error", "upstream_disconnected"),
    "only an interim answer": (b"HTTP/1.1 100 Continue\r\n\r\n", "backend_error", "upstream_disconnected"),
    "less than its length": (head(content_length=9) + b"half", "truncated", "upstream_cut"),
    "no last chunk": (events() + piece(b"half"), "truncated", "upstream_cut"),
    "half a chunk": (events() + b"10\r\nhalf", "truncated", "upstream_cut"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "backend_error", "bad_upstream_response"),
    "a bad status": (b"HTTP/1.1 abc\r\n\r\n", "backend_error", "bad_upstream_response"),
    "a bad chunk": (events() + piece(b"a") + b"zz\r\n", "truncated", "upstream_framing"),
    "two lengths": (head(content_length="1\r\ncontent-length: 2") + b"xx", "backend_error", "bad_upstream_response"),
    "a length and chunks": (
        head(content_length=1, transfer_encoding="chunked") + piece(b"x") + LAST,
        "backend_error",
        "bad_upstream_response",
    ),
    "a protocol that nobody asked for": (
        head(101, upgrade="websocket", connection="upgrade") + b"\x81\x00",
        "backend_error",
        "bad_upstream_response",
    ),
}


@pytest.mark.parametrize("answer, outcome, code", FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_is_told_once_and_ends_the_connection(answer: bytes, outcome: str, code: str) -> None:
    for reads in ([answer], [bytes([byte]) for byte in answer]):
        bench = Bench()
        heard, connection, wire, _ = await bench.send()
        for read in reads:
            if read:
                connection.data_received(read)
        if not wire.closed:
            connection.connection_lost(None)
        assert heard.fault is not None
        assert (heard.end, heard.fault.code) == (outcome, code)
        assert len(bench.origin.opened) == 1  # nothing was sent twice
        await bench.pool.close()


async def test_a_connection_that_breaks_under_an_answer_without_a_length_is_a_fault() -> None:
    bench = Bench()
    heard, connection, _, _ = await bench.send()
    connection.data_received(head(200) + b"so far")
    connection.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
    assert heard.end == "truncated"
    assert "reset" in heard.fault.message


@pytest.mark.parametrize("size", [16, 1000, 10**9])
async def test_a_head_is_bounded_for_every_slicing(size: int) -> None:
    def sliced(answer: bytes) -> list[bytes]:
        return [answer[i : i + size] for i in range(0, len(answer), size)]

    fits = head(200, x=b"y".decode() * (HEAD_LIMIT - 200), content_length=2)
    bench = Bench()
    heard, connection, wire, _ = await bench.send()
    for read in sliced(fits + b"hi"):
        connection.data_received(read)
    assert (heard.end, heard.body) == ("end", b"hi")

    long = head(200, x="y" * (HEAD_LIMIT + 200), content_length=2)
    heard, connection, wire, _ = await bench.send()
    for read in sliced(long + b"hi"):
        if not wire.closed:
            connection.data_received(read)
    assert (heard.end, heard.heads, wire.closed) == ("backend_error", 0, True)
    assert heard.fault.code == "bad_upstream_response"

    many = b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000 + b"content-length: 0\r\n\r\n"
    heard, connection, wire, _ = await bench.send()
    for read in sliced(many):
        if not wire.closed:
            connection.data_received(read)
    assert (heard.end, wire.closed) == ("backend_error", True)
    await bench.pool.close()


# -- keep-alive ------------------------------------------------------------------------------------


async def test_a_connection_is_used_again_after_a_whole_answer_and_only_then() -> None:
    bench = Bench()
    heard, connection, wire, call = await bench.send()
    connection.data_received(events() + piece(b"a"))
    _, other, _, _ = await bench.send()  # the first answer is not over
    assert other is not connection
    connection.data_received(LAST)
    again, third, _, call = await bench.send()
    assert third is connection
    assert call.connect == 0.0
    connection.data_received(whole(b"second"))
    assert again.body == b"second"
    assert heard.body == b"a"
    assert wire.sent.count(b"POST ") == 2
    await bench.pool.close()


async def test_an_answer_before_the_request_was_taken_is_delivered_and_ends_the_connection() -> None:
    bench = Bench()
    heard, connection, wire, _ = await bench.send(Request(b"POST", b"/v1/files", [], b"x" * 200_000))
    wire.unsent = 100_000
    connection.data_received(whole(b"too large", 413))
    assert (heard.status, heard.body, heard.end) == (413, b"too large", "end")
    assert wire.closed


async def test_bytes_on_an_idle_connection_end_it() -> None:
    bench = Bench()
    _, connection, wire, _ = await bench.send()
    connection.data_received(whole(b"x"))
    connection.data_received(whole(b"nobody asked"))
    assert wire.closed
    heard, other, _, _ = await bench.send()
    assert other is not connection
    other.data_received(whole(b"right"))
    assert heard.body == b"right"
    await bench.pool.close()


@pytest.mark.parametrize("lost", [None, ConnectionResetError(104, "Connection reset by peer")])
async def test_a_reused_connection_that_died_before_any_byte_is_retried_once(lost: Exception | None) -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    connection.data_received(whole(b"x"))
    heard, same, _, _ = await bench.send()
    assert same is connection
    connection.connection_lost(lost)
    await asyncio.sleep(0)
    fresh, wire = bench.origin.opened[-1]
    assert fresh is not connection
    assert b'{"a":1}' in wire.sent
    fresh.data_received(whole(b"second try"))
    assert (heard.body, heard.end) == (b"second try", "end")
    assert len(bench.origin.opened) == 2
    await bench.pool.close()


async def test_the_retry_is_not_retried() -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    connection.data_received(whole(b"x"))
    heard, _, _, _ = await bench.send()
    connection.connection_lost(None)
    await asyncio.sleep(0)
    bench.origin.opened[-1][0].connection_lost(None)
    await asyncio.sleep(0)
    assert heard.end == "backend_error"
    assert len(bench.origin.opened) == 2


async def test_a_retry_that_finds_nobody_is_a_fault() -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    connection.data_received(whole(b"x"))
    heard, _, _, _ = await bench.send()
    bench.origin.refuses = ConnectionRefusedError(111, "Connection refused")
    connection.connection_lost(None)
    await heard.whole()
    assert (heard.end, heard.fault.code) == ("unreachable", "connect")


async def test_a_reused_connection_that_died_after_a_byte_is_not_retried() -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    connection.data_received(whole(b"x"))
    heard, _, _, _ = await bench.send()
    connection.data_received(b"H")
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert heard.end == "backend_error"
    assert len(bench.origin.opened) == 1


async def test_a_retry_that_was_given_up_sends_nothing() -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    connection.data_received(whole(b"x"))
    heard, _, _, call = await bench.send()
    connection.connection_lost(None)
    call.abort()
    await asyncio.sleep(0.01)
    assert heard.end == ""
    assert all(wire.closed or not wire.sent for _, wire in bench.origin.opened[1:])
    assert bench.pool.open == 0 or bench.origin.opened[-1][1].closed


async def test_a_retry_that_was_given_up_and_finds_nobody_says_nothing() -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    connection.data_received(whole(b"x"))
    heard, _, _, call = await bench.send()
    bench.origin.refuses = ConnectionRefusedError(111, "Connection refused")
    connection.connection_lost(None)
    call.abort()
    await asyncio.sleep(0.01)
    assert heard.end == ""


async def test_idle_connections_are_bounded_in_number_and_in_time() -> None:
    bench = Bench(keep=2, keep_for=0.02)
    running = [await bench.send() for _ in range(3)]
    for _, connection, _, _ in running:
        connection.data_received(whole(b"x"))
    assert [wire.closed for _, _, wire, _ in running] == [False, False, True]
    bench.now += 1.0
    await asyncio.sleep(0.05)  # the sweeper's own timer
    assert all(wire.closed for _, _, wire, _ in running)
    await bench.send()
    assert len(bench.origin.opened) == 4
    await bench.pool.close()


async def test_a_retired_pool_ends_idle_connections_now_and_busy_ones_after_their_answer() -> None:
    bench = Bench()
    _, idle, idle_wire, _ = await bench.send()
    heard, busy, wire, _ = await bench.send()
    idle.data_received(whole(b"x"))
    bench.pool.retire()
    assert (idle_wire.closed, wire.closed) == (True, False)
    busy.data_received(whole(b"to the end"))
    assert (heard.body, wire.closed) == (b"to the end", True)


async def test_a_pool_that_closes_ends_every_exchange() -> None:
    bench = Bench()
    heard, connection, wire, _ = await bench.send()
    connection.data_received(events() + piece(b"a"))
    await bench.pool.close()
    assert wire.closed
    assert heard.end == "internal"


# -- its owner's side ------------------------------------------------------------------------------


async def test_an_aborted_call_closes_at_once_and_says_nothing() -> None:
    bench = Bench()
    heard, connection, wire, call = await bench.send()
    connection.data_received(events())
    call.abort()
    assert wire.closed
    connection.data_received(piece(b"late") + LAST)
    connection.connection_lost(None)
    assert (heard.body, heard.end) == (b"", "")
    assert bench.pool.open == 0
    call.abort()  # again changes nothing
    call.pause()
    call.resume()


async def test_a_sink_that_aborts_inside_a_call_hears_nothing_more() -> None:
    bench = Bench()

    class Leaves(Heard):
        def on_head(self, at: float, status: int, headers: list[tuple[bytes, bytes]]) -> None:
            super().on_head(at, status, headers)
            self.call.abort()

    heard = Leaves()
    heard.call = await bench.pool.send(POST, heard)
    connection, wire = bench.origin.opened[0]
    connection.data_received(whole(b"all at once"))
    assert (heard.heads, heard.body, heard.end, wire.closed) == (1, b"", "", True)


async def test_pause_stops_reading_and_resume_goes_on() -> None:
    bench = Bench()
    heard, connection, wire, call = await bench.send()
    connection.data_received(events())
    call.pause()
    assert not wire.reading
    call.resume()
    assert wire.reading
    connection.data_received(piece(b"on") + LAST)
    assert (heard.body, heard.end) == (b"on", "end")
    await bench.pool.close()


# -- time limits: the clock is the test's ----------------------------------------------------------


async def ticks(bench: Bench, seconds: float) -> None:
    """The clock moves on, and every call under way is looked at."""
    bench.now += seconds
    for call in list(bench.pool._calls):
        call.check(bench.now)


async def test_the_first_output_is_waited_for_no_longer_than_its_limit() -> None:
    bench = Bench()
    heard, connection, wire, _ = await bench.send()
    await ticks(bench, 119.0)
    connection.data_received(events() + piece(b": ping\n\n"))
    assert heard.end == ""
    await ticks(bench, 1.0)
    assert (heard.end, wire.closed) == ("timeout_first_output", True)
    assert "120 s" in heard.fault.message


async def test_after_the_first_output_silence_is_limited() -> None:
    bench = Bench()
    heard, connection, wire, call = await bench.send()
    connection.data_received(events() + piece(b"data: a\n\n"))
    call.output()
    for _ in range(4):
        await ticks(bench, 119.0)
        connection.data_received(piece(b": ping\n\n"))
    assert heard.end == ""
    await ticks(bench, 120.0)
    assert (heard.end, wire.closed) == ("timeout_idle", True)


async def test_the_whole_exchange_is_limited() -> None:
    bench = Bench()
    heard, connection, wire, call = await bench.send()
    connection.data_received(events() + piece(b"data: a\n\n"))
    call.output()
    for _ in range(6):
        await ticks(bench, 99.0)
        connection.data_received(piece(b"data: b\n\n"))
    assert heard.end == ""
    await ticks(bench, 6.0)
    assert (heard.end, wire.closed) == ("timeout_total", True)


async def test_who_is_paused_by_a_slow_client_is_not_idle() -> None:
    bench = Bench()
    heard, connection, _, call = await bench.send()
    connection.data_received(events() + piece(b"data: a\n\n"))
    call.output()
    call.pause()
    await ticks(bench, 200.0)
    assert heard.end == ""
    call.resume()
    await ticks(bench, 119.0)
    assert heard.end == ""
    await ticks(bench, 2.0)
    assert heard.end == "timeout_idle"


async def test_without_limits_nothing_is_limited() -> None:
    bench = Bench()
    bench.pool.timeouts = Timeouts(None, None, None, None)
    heard, connection, _, call = await bench.send()
    await ticks(bench, 1e6)
    call.output()
    await ticks(bench, 1e6)
    connection.data_received(whole(b"at last"))
    assert (heard.body, heard.end) == (b"at last", "end")
    await bench.pool.close()


async def test_an_ended_call_is_watched_no_longer() -> None:
    bench = Bench()
    _, connection, _, _ = await bench.send()
    assert bench.pool._calls
    connection.data_received(whole(b"x"))
    assert not bench.pool._calls
    await bench.pool.close()


@pytest.mark.parametrize(
    "limits, said, outcome",
    [
        (Timeouts(first_output=0.02), b"", "timeout_first_output"),
        (Timeouts(first_output=0.02), events(), "timeout_first_output"),
        (Timeouts(total=0.02), events() + piece(b"data: a\n\n"), "timeout_total"),
    ],
)
async def test_the_timers_of_the_loop_do_fire(stage: Any, limits: Timeouts, said: bytes, outcome: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(said)
        await peer.gone.wait()

    back = await stage(script)
    pool = Pool(Origin.of(back.url), limits)
    heard = Heard()
    await pool.send(POST, heard)
    assert (await heard.whole()).end == outcome
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)
    await pool.close()


async def test_the_idle_timer_of_the_loop_fires_after_the_first_output(stage: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(b"data: a\n\n"))
        await peer.gone.wait()

    back = await stage(script)
    pool = Pool(Origin.of(back.url), Timeouts(idle=0.04))
    heard = Heard()
    call = await pool.send(POST, heard)
    call.output()
    assert (await heard.whole()).end == "timeout_idle"
    await pool.close()


# -- real sockets ----------------------------------------------------------------------------------


async def test_a_closed_port_is_unreachable_with_the_systems_reason() -> None:
    pool = Pool(Origin.of("http://127.0.0.1:1/v1"), Timeouts())
    with pytest.raises(UpstreamFault) as caught:
        await pool.send(POST, Heard())
    assert (caught.value.outcome, caught.value.code) == ("unreachable", "connect")
    assert caught.value.message == "cannot connect to 127.0.0.1:1: Connection refused"


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    pool = Pool(Origin.of("http://no-such-host.invalid/v1"), Timeouts())
    with pytest.raises(UpstreamFault) as caught:
        await pool.send(POST, Heard())
    assert (caught.value.outcome, caught.value.code) == ("unreachable", "dns")


async def test_a_connection_that_is_not_made_in_time_is_a_timeout() -> None:
    class Slow(Nowhere):
        async def connect(self, factory: Callable[[], Connection]) -> Connection:
            await asyncio.sleep(10)
            raise AssertionError

    pool = Pool(Slow(), Timeouts(connect=0.01))  # type: ignore[arg-type]
    with pytest.raises(UpstreamFault) as caught:
        await pool.send(POST, Heard())
    assert caught.value.outcome == "timeout_connect"


async def test_a_server_that_closes_as_soon_as_it_accepts_is_a_fault_and_never_a_crash(stage: Any) -> None:
    async def slams(peer: Peer) -> None:
        peer.reset()

    back = await stage(slams)
    pool = Pool(Origin.of(back.url), Timeouts())
    outcomes = set()
    for _ in range(50):
        heard = Heard()
        try:
            await pool.send(POST, heard)
            outcomes.add((await heard.whole()).end)
        except UpstreamFault as fault:
            outcomes.add(fault.outcome)
    assert outcomes <= {"backend_error", "unreachable"}
    assert pool.open == 0


async def test_a_connection_lost_before_it_was_handed_over_is_a_fault() -> None:
    class Slams(Nowhere):
        async def connect(self, factory: Callable[[], Connection]) -> Connection:
            connection = await super().connect(factory)
            connection.connection_lost(None)
            return connection

    bench = Bench()
    bench.pool.origin = Slams()  # type: ignore[assignment]
    with pytest.raises(UpstreamFault) as caught:
        await bench.pool.send(POST, Heard())
    assert caught.value.outcome == "unreachable"
    assert bench.pool.open == 0


async def test_a_client_that_leaves_while_connecting_leaves_nothing_behind(stage: Any) -> None:
    back = await stage(replies(whole(b"x")))
    pool = Pool(Origin.of(back.url), Timeouts())
    for _ in range(20):
        task = asyncio.ensure_future(pool.send(POST, Heard()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert pool.open == 0
    await pool.close()


async def test_no_number_of_streams_is_too_many_for_one_pool(stage: Any) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await release.wait()
        peer.send(whole(b"x"))

    back = await stage(script)
    pool = Pool(Origin.of(back.url), Timeouts())
    heard = [Heard() for _ in range(300)]
    await asyncio.gather(*(pool.send(POST, each) for each in heard))
    assert pool.open == 300
    release.set()
    for each in heard:
        assert (await each.whole()).body == b"x"
    assert pool.open == 256  # what is kept is bounded
    await pool.close()
    await asyncio.sleep(0.01)
    assert pool.open == 0


async def test_a_secret_is_in_no_repr() -> None:
    request = Request(b"POST", b"/", [(b"authorization", b"Bearer sk-secret")], b"a prompt")
    assert "sk-secret" not in repr(request)
    assert "a prompt" not in repr(request)
