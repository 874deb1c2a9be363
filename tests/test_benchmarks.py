"""`make bench` runs and measures what it says. Ratios are its result, not ours to assert."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def backend(unused_tcp_port: int) -> Iterator[int]:
    running = subprocess.Popen([sys.executable, str(BENCHMARKS / "upstream.py"), str(unused_tcp_port)])
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", unused_tcp_port)) == 0:
                    break
            time.sleep(0.05)  # a process starts: there is no clock to pass
        yield unused_tcp_port
    finally:
        running.terminate()
        running.wait()


def ask(port: int, script: str, **members: object) -> tuple[str, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    body = {"model": "m", "messages": [{"role": "user", "content": script}], **members}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    answer = connection.getresponse()
    found = answer.headers["content-type"], answer.read()
    connection.close()
    return found


def test_the_backend_says_what_the_prompt_asks_for(backend: int) -> None:
    before = time.time()
    kind, body = ask(backend, "script 5 1 2 1", stream=True, stream_options={"include_usage": True})
    events = [event.removeprefix("data: ") for event in body.decode().split("\n\n")]
    assert kind == "text/event-stream"
    assert events[-2:] == ["[DONE]", ""]
    docs = [json.loads(event) for event in events[:-2]]
    texts = [doc["choices"][0]["delta"].get("content") for doc in docs if doc["choices"]]
    assert texts[0] == "" and texts[2:] == [" word1", " word2", " word3", " word4", None]
    assert before < float(texts[1].removeprefix(" at ")) < time.time()
    assert docs[-1]["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def test_the_backend_tells_usage_only_when_asked(backend: int) -> None:
    _, body = ask(backend, "script 3 0 0 0", stream=True)
    assert b"usage" not in body and body.endswith(b"data: [DONE]\n\n")


def test_the_backend_answers_json_in_one_chunk(backend: int) -> None:
    kind, body = ask(backend, "script 0 0 0 0")
    assert kind == "application/json"
    assert json.loads(body)["choices"][0]["message"]["content"] == "One chunk."


def test_a_small_run_writes_rows_with_units(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    found = run("--only", "4 events, one", "--rounds", "1", "--seconds", "0.3", "--output", str(file))
    assert found.returncode == 0, found.stderr
    text = file.read_text()
    header, cpu = (
        next(line for line in text.splitlines() if line.startswith(start)) for start in ("| | ", "| CPU per")
    )
    names = [cell.strip() for cell in header.strip("|").split("|")][1:]
    assert cpu.startswith("| CPU per event, us |")
    values = dict(zip(names, (cell.strip() for cell in cpu.strip("|").split("|")[1:]), strict=True))
    assert float(values["manometer"].replace(",", "")) > 0
    assert values["direct"] == ""
    assert re.search(r"\| TTFT p50, ms \|( [\d.,]+ \|)+", text)
    assert re.search(r"\| &emsp;error p50, ms \| -?[\d.]+ \|", text)
    assert "failed" not in text


def test_a_case_that_does_not_exist_is_refused_in_a_line() -> None:
    found = run("--only", "nothing like it")
    assert found.returncode == 2
    assert "--only: no case is called 'nothing like it'; there are: 64 streams" in found.stderr
