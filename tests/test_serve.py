"""`manometer serve` as its user meets it: it starts or says why not, reloads, drains, and tells no secret."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests import wire
from tests.served import Manometer
from tests.stage import (
    LAST,
    Answer,
    Client,
    Peer,
    Script,
    Stage,
    chat,
    events,
    eventually,
    piece,
    post,
    replies,
    whole,
)

BODY = wire.body("hi", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})
Found = TypeVar("Found")


def refused(*arguments: str, folder: Path, **environ: str) -> list[str]:
    """What it said on standard error before it gave up with status 2."""
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "serve", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


# -- it starts, or says why not --------------------------------------------------------------------


def test_without_any_configuration_it_says_what_to_set(tmp_path: Path) -> None:
    (line,) = refused(folder=tmp_path)
    assert line.startswith("manometer: backends: none is configured. Set MERCURY_API_KEY")


def test_every_fault_of_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[backends.a]\nurl = "http://x"\ncolour = 1\n[listen]\nworkers = 0\n')
    lines = refused("--config", "m.toml", folder=tmp_path)
    assert [line.split(": ")[:3] for line in sorted(lines)] == [
        ["manometer", "m.toml", "backends.a.colour"],
        ["manometer", "m.toml", "listen.workers"],
    ]


@pytest.mark.parametrize("field", ["address", "admin"])
def test_a_port_in_use_says_which_setting_to_change(tmp_path: Path, field: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        where = {"ADDRESS": "127.0.0.1:0", "ADMIN": "127.0.0.1:0"} | {field.upper(): f"127.0.0.1:{port}"}
        environ = {f"MANOMETER_LISTEN__{name}": value for name, value in where.items()}
        (line,) = refused(folder=tmp_path, AR_BASE_URL="http://127.0.0.1:1", **environ)
    assert line == f"manometer: listen.{field}: 127.0.0.1:{port} is in use: stop what uses it or choose another"


def test_an_address_of_another_machine_says_so(tmp_path: Path) -> None:
    (line,) = refused(folder=tmp_path, AR_BASE_URL="http://127.0.0.1:1", MANOMETER_LISTEN__ADDRESS="192.0.2.1:8080")
    assert line.startswith("manometer: listen.address: 192.0.2.1:8080 can't be bound: ")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_the_tutorials_variables_are_enough_to_start(stage: Any, tmp_path: Path, host: str) -> None:
    back = await stage(replies(whole(BODY)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy.cli", "serve"),
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PATH": "",
            "MERCURY_API_KEY": "mercury-key",
            "MERCURY_BASE_URL": back.url,
            "MANOMETER_LISTEN__ADDRESS": f"{host}:0",
            "MANOMETER_LISTEN__ADMIN": f"{host}:0",
        },
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        line = json.loads(await asyncio.wait_for(process.stderr.readline(), 60))
        assert (line["event"], line["backends"]) == ("listening", ["mercury"])
        assert line["address"].startswith(f"{host}:")
        port = int(line["address"].rpartition(":")[2])
        reader, writer = await asyncio.open_connection(host.strip("[]"), port)
        writer.write(post(chat(model="anything"), connection="close"))
        assert BODY in await asyncio.wait_for(reader.read(), 30)
        writer.close()
        exchange = json.loads(await asyncio.wait_for(process.stderr.readline(), 60))
        assert (exchange["outcome"], exchange["backend"], exchange["model"]) == ("ok", "mercury", "anything")
        assert back.asked[0].header("authorization") == "Bearer mercury-key"
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0


# -- a running one ---------------------------------------------------------------------------------


async def off_loop(ask: Callable[..., Found], *arguments: Any) -> Found:
    return await asyncio.get_running_loop().run_in_executor(None, ask, *arguments)


class Running:
    """A manometer, its backend, and a client."""

    def __init__(self, served: Manometer, folder: Path) -> None:
        self.served = served
        self.config = folder / "manometer.toml"
        self.port = int(served.url.rpartition(":")[2])
        self.script: Script = replies(whole(BODY))
        self.stage = Stage(lambda peer: self.script(peer))

    def request(self, doc: Any, **headers: str) -> bytes:
        return post(doc, **{"authorization": "Bearer client-key"} | headers)

    async def ask(self, doc: Any) -> Answer:
        async with Client(self.port) as client:
            client.send(self.request(doc))
            return await client.answer()

    async def hup(self, text: str, event: str) -> dict[str, Any]:
        """A new file and the signal; what the log said of it."""
        known = len(self.served.said(event))
        self.config.write_text(text)
        self.served.process.send_signal(signal.SIGHUP)
        said = await off_loop(self.served.wait, lambda: self.served.said(event)[known:])
        return dict(said[0])


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    served = await off_loop(Manometer, tmp_path)
    found = Running(served, tmp_path)
    loop = asyncio.get_running_loop()
    found.stage._server = await loop.create_server(lambda: Peer(found.stage), "127.0.0.1", served.backend)
    yield found
    if served.process.poll() is None:
        served.process.terminate()
        await off_loop(served.process.wait)
    await found.stage.stop()


async def test_a_reload_takes_a_good_file_refuses_a_bad_one_and_loses_no_stream(running: Running) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(wire.text("a")))
        await go_on.wait()
        peer.send(piece(wire.stop() + wire.usage(1, 2) + wire.DONE), LAST)

    running.script = script
    before = running.config.read_text()
    async with Client(running.port) as client:
        client.send(running.request(chat(stream=True)))
        await client.until(b'"a"')

        refused = await running.hup("[backends]\nmain = 1", "reload_refused")
        assert "backends.main" in refused["reason"]
        running.script = replies(whole(BODY))
        assert (await running.ask(chat(model="x"))).header("x-manometer-backend") == "main"

        renamed = before.replace("[backends.main]", "[backends.renamed]")
        await running.hup(renamed, "reloaded")
        await asyncio.sleep(0.1)  # the forwarder hears of it a moment later
        assert (await running.ask(chat(model="x"))).header("x-manometer-backend") == "renamed"

        partial = renamed.replace("workers = 1", "workers = 2")
        said = await running.hup(partial, "reload_partial")
        assert "listen.workers" in said["reason"]

        go_on.set()
        got = await client.answer()
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    rows = json.loads(await off_loop(running.served.get, "/api/requests"))["requests"]
    await off_loop(running.served.wait, lambda: len(running.served.said("exchange")) == 3)
    assert {row["outcome"] for row in rows} == {"ok"}
    found = await off_loop(running.served.metrics)
    assert found.sum("requests_total", backend="main") == 2
    assert found.sum("requests_total", backend="renamed") == 1


async def test_a_reload_can_end_the_lines_of_exchanges(running: Running) -> None:
    running.script = replies(whole(BODY))
    await running.hup(running.config.read_text() + "\n[measure]\njournal = false\n", "reloaded")
    await running.ask(chat(model="x"))
    await off_loop(running.served.wait, lambda: running.served.metrics().sum("requests_total", outcome="ok") == 1)
    assert not running.served.said("exchange")


async def test_sigterm_lets_streams_end_takes_no_new_ones_and_exits_with_0(running: Running) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(wire.text("a")))
        await go_on.wait()
        peer.send(piece(wire.stop() + wire.usage(1, 2) + wire.DONE), LAST)

    running.script = script

    async def closed() -> bool:
        try:
            async with Client(running.port):
                return False
        except OSError:
            return True

    async with Client(running.port) as client:
        client.send(running.request(chat(stream=True)))
        await client.until(b'"a"')
        running.served.process.terminate()
        async with asyncio.timeout(10):
            while True:
                if await closed():
                    break
                await asyncio.sleep(0.02)
        assert running.served.process.poll() is None
        go_on.set()
        got = await client.answer()
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    assert await off_loop(running.served.process.wait, 30) == 0
    (line,) = running.served.said("exchange")
    assert (line["outcome"], line["completion_tokens"]) == ("ok", 2)
    assert len(running.served.said("stopped")) == 1


async def test_no_secret_shows_anywhere(running: Running) -> None:
    await running.ask(chat(model="x", prompt="the-prompt"))
    running.script = replies(whole(b'{"error":{"message":"no"}}', 401))
    async with Client(running.port) as client:
        client.send(running.request(chat(), authorization="Bearer wrong-key"))
        wrong = await client.answer()
        client.send(post(chat(), path="/v1/chat/completions?key=query-key", authorization="Bearer client-key"))
        await client.answer()
    await off_loop(running.served.wait, lambda: len(running.served.said("exchange")) == 3)
    listed = await off_loop(running.served.get, "/api/requests")
    texts = [running.served.log.read_text(), listed, wrong.body.decode()]
    texts += [await off_loop(running.served.get, path) for path in ("/metrics", "/api/summary", "/")]
    texts += [
        await off_loop(running.served.get, f"/api/requests/{row['id']}") for row in json.loads(listed)["requests"]
    ]
    for secret in ("client-key", "backend-key", "wrong-key", "query-key", "the-prompt"):
        assert not [text for text in texts if secret in text], secret
    assert any("backend-key" in (asked.header("authorization") or "") for asked in running.stage.asked)


async def test_the_admin_side_is_ready_only_while_every_forwarder_is(running: Running) -> None:
    assert "ready" in await off_loop(running.served.get, "/readyz")
    assert await off_loop(running.served.get, "/healthz")
    await eventually(lambda: running.served.said("listening"))
