"""`make bench` runs and measures what it says. Ratios are its result, not ours to assert."""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """The benchmarks import each other by their names alone, as scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def executable(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{sys.executable}\n{text}")
    file.chmod(0o755)
    return file


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


def test_the_backend_tells_its_model_to_whoever_looks(backend: int) -> None:
    connection = HTTPConnection("127.0.0.1", backend, timeout=10)
    for path in ("/health", "/v1/models"):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["data"][0]["id"]) == (200, "m")
    connection.close()


_LISTENS = """\
import socket, sys, time
where = next(word.partition("=")[2] for word in sys.argv if word.startswith("--port="))
listening = socket.create_server(("127.0.0.1", int(where)))
time.sleep(60)
"""


def test_a_peer_is_found_by_the_variable_alone(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contestants = module("contestants")
    package = tmp_path / "node_modules" / "@portkey-ai" / "gateway"
    start = executable(package / "build" / "start-server.js", _LISTENS)
    (package / "package.json").write_text('{"name": "@portkey-ai/gateway", "version": "9.8.7"}')
    folder = tmp_path / "node_modules" / ".bin"
    folder.mkdir()
    (folder / "gateway").symlink_to(start)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MANOMETER_BENCH_PEERS", f"{tmp_path / 'none'}:{folder}")
    found = contestants.portkey(4321, tmp_path)
    found.stop()
    assert found.name == "portkey 9.8.7"
    assert found.headers == {"x-portkey-provider": "openai", "x-portkey-custom-host": "http://127.0.0.1:4321/v1"}


@pytest.mark.parametrize("peer", ["litellm", "sglang", "portkey"])
def test_a_peer_that_is_nowhere_takes_no_part(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    contestants = module("contestants")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MANOMETER_BENCH_PEERS", raising=False)
    with pytest.raises(contestants.NotThere, match="not installed; MANOMETER_BENCH_PEERS may name"):
        contestants.PEERS[peer](4321, tmp_path)


def test_a_peer_whose_interpreter_is_gone_takes_no_part(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contestants = module("contestants")
    executable(tmp_path / "bin" / "smg", "").write_text("#!/nowhere/python\n")
    monkeypatch.setenv("MANOMETER_BENCH_PEERS", str(tmp_path / "bin"))
    with pytest.raises(contestants.NotThere, match=r"did not start: .*No such file"):
        contestants.sglang(4321, tmp_path)


def test_another_gateway_is_not_taken_for_portkeys(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contestants = module("contestants")
    executable(tmp_path / "bin" / "gateway", f"open({str(tmp_path / 'was run')!r}, 'w')")
    monkeypatch.setenv("MANOMETER_BENCH_PEERS", str(tmp_path / "bin"))
    with pytest.raises(contestants.NotThere, match="another one"):
        contestants.portkey(4321, tmp_path)
    assert not (tmp_path / "was run").exists()


@pytest.mark.parametrize(
    ("releases", "said"),
    [
        (["1.107.0"], "there is 1.107.0; only 1.106.2 is run"),
        (["1.106.2", "1.82.8"], "there is 1.106.2 and 1.82.8; only"),
        ([], "an unknown release"),
    ],
)
def test_litellm_of_another_release_is_refused_without_running_it(
    module: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    releases: list[str],
    said: str,
) -> None:
    contestants = module("contestants")
    executable(tmp_path / "bin" / "litellm", f"open({str(tmp_path / 'was run')!r}, 'w')")
    for release in releases:
        facts = tmp_path / "lib" / "python3.12" / "site-packages" / f"litellm-{release}.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: litellm\nVersion: {release}\n")
    monkeypatch.setenv("MANOMETER_BENCH_PEERS", str(tmp_path / "bin"))
    with pytest.raises(contestants.NotThere, match=said):
        contestants.litellm(4321, tmp_path)
    assert not (tmp_path / "was run").exists()


class Picky(BaseHTTPRequestHandler):
    """Answers those only who send its header."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b"{}"
        self.send_response(200 if self.headers["x-wanted"] == "yes" else 400)
        self.send_header("llm_provider-content-length", "999")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(("headers", "failed"), [({"x-wanted": "yes"}, {}), ({}, {"status 400": 2})])
def test_a_contestants_headers_are_sent(
    module: Callable[[str], ModuleType], headers: dict[str, str], failed: dict[str, int]
) -> None:
    cases, contestants = module("cases"), module("contestants")
    case = next(case for case in cases.CASES if case.name == "64 clients, one-chunk JSON at once")
    case = replace(case, load=replace(case.load, connections=2))
    with ThreadingHTTPServer(("127.0.0.1", 0), Picky) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        peer = contestants.Contestant("peer", server.server_port, headers=headers)
        sample = cases.measure(case, peer, peer, 0.1)
        server.shutdown()
    assert sample.failed == failed
    assert bool(sample.answers) is not bool(failed)


def test_who_is_not_there_any_more_fails_and_breaks_nothing(
    module: Callable[[str], ModuleType], unused_tcp_port: int
) -> None:
    cases, contestants, figures = module("cases"), module("contestants"), module("figures")
    gone = contestants.Contestant("gone", unused_tcp_port)
    case = cases.CASES[0]
    sample = cases.measure(case, gone, gone, 0.1)
    assert sample.failed == {"no connection": 64}
    whole = cases.Sample(cpu=2e-5, rate=1.0, answers=10, ttfts=[0.02], totals=[1.0])
    rows = {row.what: row.cells for row in figures.section(case, {"nginx": [whole], "gone": [sample]}).rows}
    assert rows["CPU per event, us"] == {"nginx": "20.0"}
    assert "gone" not in rows["  times nginx's"]
    assert rows["failed"] == {"nginx": "0", "gone": "64 of 64: no connection"}


@pytest.mark.parametrize(
    ("unified", "file", "quota"),
    [(True, "cpu.max", "2000 10000"), (False, "cpu/{group}/cpu.cfs_quota_us", "2000")],
    ids=["cgroup v2", "cgroup v1"],
)
def test_a_forwarder_is_held_in_the_words_of_either_kernel(
    module: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    unified: bool,
    file: str,
    quota: str,
) -> None:
    scaling = module("scaling")
    monkeypatch.setattr(scaling, "_GROUPS", tmp_path)
    (tmp_path / "cpu").mkdir()
    if unified:
        (tmp_path / "cgroup.controllers").touch()
    group = f"manometer-bench-{os.getpid()}-4711"
    with scaling._held([4711]):
        where = tmp_path / (f"{group}/{file}" if unified else file.format(group=group))
        assert where.read_text() == quota
        assert (where.parent / "cgroup.procs").read_text() == "4711"
    assert (where.parent.parent / "cgroup.procs").read_text() == "4711"  # given back


def test_without_a_quota_the_study_takes_no_part(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scaling = module("scaling")
    monkeypatch.setattr(scaling, "_GROUPS", tmp_path / "nowhere")
    with pytest.raises(module("contestants").NotThere, match="quota"), scaling._held([4711]):
        pytest.fail("nothing was held")


def test_a_proxy_has_a_core_of_its_own_where_the_case_says_so_and_all_of_them_afterwards(
    module: Callable[[str], ModuleType],
) -> None:
    cases = module("cases")
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core can't be split")
    case = next(case for case in cases.CASES if case.apart)
    proxy, source = (subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2))
    try:
        with cases._placed(case, [proxy.pid], [source.pid]):
            assert os.sched_getaffinity(proxy.pid) == cores - {max(cores)}
            assert os.sched_getaffinity(source.pid) == os.sched_getaffinity(0) == {max(cores)}
        assert {frozenset(os.sched_getaffinity(pid)) for pid in (proxy.pid, source.pid, 0)} == {frozenset(cores)}
    finally:
        for running in (proxy, source):
            running.kill()
            running.communicate()
