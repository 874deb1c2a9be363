"""Servers and clients that nobody here wrote, through the proxy: a real diffusion server, a real AR one, three SDKs.

Heavy: installs what it needs outside the repository at its first run, and takes minutes. `make test-real`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.check import Findings, check
from proxy.settings import Settings
from tests.stage import Proxy, ask, chat, post

pytestmark = [pytest.mark.real]

REAL = Path(__file__).parent / "real"
PATIENCE = 900.0  # seconds for an installation and a start
SEED = {"seed": 1, "max_tokens": 128}


def serve(script: str) -> Iterator[str]:
    """Starts a server; its base URL. It is killed with its children: one of them ignores SIGTERM."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    process = subprocess.Popen(
        ["bash", str(REAL / script), str(port)], start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        until = time.monotonic() + PATIENCE
        while not _answers(f"{url}/models"):
            assert process.poll() is None and time.monotonic() < until, f"{script} does not start"
            time.sleep(0.5)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def diffusion() -> Iterator[str]:
    yield from serve("diffusion_server.sh")


@pytest.fixture(scope="module")
def autoregressive() -> Iterator[str]:
    yield from serve("ar_server.sh")


@pytest.fixture(scope="module")
def model(diffusion: str) -> str:
    with urllib.request.urlopen(f"{diffusion}/models") as answer:
        return str(json.load(answer)["data"][0]["id"])


def conf(url: str, model: str, dialect: str = "dlmserve") -> Settings:
    """The app asks for the model "app", and cannot send steps: the route does."""
    return Settings(
        backends={"real": {"url": url, "dialect": dialect, "models": [model]}},
        routes={"app": {"split": {"real": 1}, "diffusion": {"steps": 16}}},
    )


Proxies = Callable[..., Awaitable[Proxy]]


async def client(sdk: str, url: str, model: str) -> str:
    """What an SDK's calls said."""
    script = str(REAL / "clients.sh")
    process = await asyncio.create_subprocess_exec("sh", script, sdk, url, model, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.parametrize("sdk", ["openai", "langchain"])
async def test_sdks_work_through_the_proxy_with_a_server_that_refuses_them(
    proxy: Proxies, diffusion: str, model: str, sdk: str
) -> None:
    through = await proxy(conf(diffusion, model))
    calls = [
        json.loads(line) for line in (await client(sdk, f"http://127.0.0.1:{through.port}/v1", "app")).splitlines()
    ]
    assert len(calls) >= 4
    assert [call for call in calls if "error" in call or not call["text"]] == []
    straight = [json.loads(line) for line in (await client(sdk, diffusion, model)).splitlines()]
    assert [call["call"] for call in straight if "error" in call], "the server became lenient: this test shows nothing"


async def test_the_llm_program_works_through_the_proxy(proxy: Proxies, diffusion: str, model: str) -> None:
    through = await proxy(conf(diffusion, model))
    said = await client("llm", f"http://127.0.0.1:{through.port}/v1", "app")
    assert "[whole: ok]" in said and "[stream: ok]" in said
    assert "[stream: failed]" in await client("llm", diffusion, model)


async def test_steps_reach_the_server_and_cost_what_they_cost(proxy: Proxies, diffusion: str, model: str) -> None:
    through = await proxy(conf(diffusion, model))
    took: dict[int, list[float]] = {4: [], 64: []}
    for steps in (4, 64, 64, 4):
        start = time.monotonic()
        request = post(chat(model="app", diffusion={"steps": steps}, **SEED))
        answer = await asyncio.wait_for(_patient(through, request), 300)
        took[steps].append(time.monotonic() - start)
        assert answer.status == 200
    print(f"steps 4: {took[4]}, steps 64: {took[64]}")
    assert min(took[64]) > 5 * max(took[4])


async def _patient(through: Proxy, request: bytes) -> Any:
    """`stage.ask` gives up after 10 s of silence, which is what this server does while it computes."""
    from tests.stage import Client

    async with Client(through.port) as connection:
        connection.send(request)
        while True:
            try:
                return await connection.answer()
            except TimeoutError:
                continue


async def test_an_impossible_division_is_rounded_and_answered(proxy: Proxies, diffusion: str, model: str) -> None:
    through = await proxy(conf(diffusion, model))
    body = chat(model="app", max_tokens=50, diffusion={"steps": 3, "block": 32}, seed=1)
    answer = await ask(through, post(body))
    assert answer.status == 200
    told = answer.header("x-manometer-translated")
    assert told == "num_denoising_steps=4 (from steps=3); block_length=32; target_length=64 (from max_tokens=50)"
    reading = await through.records.reading()
    assert (reading.canvas, reading.tokens.completion) == (64, None)


async def found(url: str, model: str, dialect: str) -> Findings:
    settings = conf(url, model, dialect)
    backend = settings.backends["real"]
    return await check("real", backend, settings.dialect(backend), 3, lambda _: None)


async def test_check_sees_steps_where_they_have_an_effect(diffusion: str, model: str) -> None:
    findings = await found(diffusion, model, "dlmserve")
    print(json.dumps(findings.json(), indent=1))
    assert findings.usable
    trial = next(trial for trial in findings.trials if trial.name == "steps")
    assert trial.effect and trial.effect.seen and trial.effect.ratio and trial.effect.ratio > 5


async def test_check_sees_none_where_they_have_none(autoregressive: str) -> None:
    findings = await found(autoregressive, "smollm2-135m", "openai")
    print(json.dumps(findings.json(), indent=1))
    assert findings.usable
    assert [(trial.name, trial.effect and trial.effect.seen) for trial in findings.trials] == [
        ("steps", False),
        ("width", False),
    ]
