"""Who competes: each a command line, a port and how to see that it is up. All proxy the same backend.

The third-party gateways are taken only where they are installed already, LiteLLM only in the one release that
its makers vouch for: later ones were malicious, so its version is read from its metadata, never by running it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import process

HERE = Path(__file__).parent
HOST = "127.0.0.1"
LITELLM = "1.106.2"


class NotThere(Exception):
    """A contestant cannot take part. One line that says why."""


@dataclass(slots=True)
class Contestant:
    """A running proxy; `direct` is the backend itself and has no processes."""

    name: str
    port: int
    admin: int | None = None  # manometer's other side
    running: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        """Its processes as they are now: the one that was started, then its children."""
        return process.tree(self.running.pid) if self.running is not None else []

    def stop(self) -> None:
        if self.running is None:
            return
        self.running.terminate()
        try:
            self.running.wait(10)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()


def port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def backend(folder: Path) -> Contestant:
    where = port()
    return _start("direct", [sys.executable, str(HERE / "upstream.py"), str(where)], where, folder)


def nginx(backend: int, folder: Path) -> Contestant:
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if binary is None:
        raise NotThere("not installed (Debian: nginx-light)")
    where = port()
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=where, backend=backend))
    return _start("nginx", [binary, "-e", str(folder / "nginx.err"), "-c", str(config)], where, folder)


def manometer(
    backend: int, folder: Path, *, workers: int = 1, name: str = "manometer", extra: Mapping[str, str] | None = None
) -> Contestant:
    where, admin = port(), port()
    config = folder / f"{name}.toml"
    config.write_text(_MANOMETER.format(port=where, admin=admin, workers=workers, backend=backend))
    command = [sys.executable, "-m", "proxy.cli", "serve", "--config", str(config)]
    ready = f"http://{HOST}:{admin}/readyz"
    return _start(name, command, where, folder, ready=lambda: _answers(ready), admin=admin, extra=extra)


def naive(backend: int, folder: Path) -> Contestant:
    where = port()
    command = [sys.executable, str(HERE / "naive.py"), str(where), f"http://{HOST}:{backend}"]
    return _start("naive", command, where, folder)


def litellm(backend: int, folder: Path) -> Contestant:
    try:
        found = version("litellm")
    except PackageNotFoundError:
        raise NotThere("not installed") from None
    if found != LITELLM:
        raise NotThere(f"{found} is installed; only {LITELLM} is run, later releases were malicious")
    where = port()
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM.format(backend=backend))
    command = [sys.executable, "-m", "litellm.proxy.proxy_cli", "--config", str(config), "--port", str(where)]
    extra = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    return _start("litellm", [*command, "--host", HOST], where, folder, extra=extra)


def sglang(backend: int, folder: Path) -> Contestant:
    try:
        version("sglang-router")
    except PackageNotFoundError:
        raise NotThere("not installed") from None
    where = port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", HOST, "--port", str(where)]
    return _start("sglang", [*command, "--worker-urls", f"http://{HOST}:{backend}"], where, folder)


def portkey(backend: int, folder: Path) -> Contestant:
    raise NotThere("not installed" if shutil.which("portkey-gateway") is None else "takes its backend by header only")


PEERS: dict[str, Callable[[int, Path], Contestant]] = {"litellm": litellm, "sglang": sglang, "portkey": portkey}


def _start(
    name: str,
    command: list[str],
    where: int,
    folder: Path,
    *,
    ready: Callable[[], bool] | None = None,
    admin: int | None = None,
    extra: Mapping[str, str] | None = None,
) -> Contestant:
    """Start it and wait until it is up; then its processes are known."""
    log = folder / f"{name}.log"
    env = os.environ | {"PYTHONPATH": str(HERE.parent)} | dict(extra or {})
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=folder, start_new_session=True)
    started = Contestant(name, where, admin, running)
    deadline = time.monotonic() + 60
    while not (ready() if ready else _connects(where)):
        if running.poll() is not None or time.monotonic() > deadline:
            started.stop()
            raise NotThere(f"did not start: {_last_line(log)}")
        time.sleep(0.05)
    return started


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def _connects(where: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, where)) == 0


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


_NGINX = """\
worker_processes 1;
daemon off;
user root;
pid {folder}/nginx.pid;
worker_rlimit_nofile 20000;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx.body;
  proxy_temp_path {folder}/nginx.proxy;
  fastcgi_temp_path {folder}/nginx.fastcgi;
  uwsgi_temp_path {folder}/nginx.uwsgi;
  scgi_temp_path {folder}/nginx.scgi;
  client_body_buffer_size 1m;
  keepalive_requests 10000000;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 256; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=8192;
    location / {{
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 300s;
    }}
  }}
}}
"""

_MANOMETER = """\
[listen]
address = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
workers = {workers}

[measure]
readings = 20000

[backends.bench]
url = "http://127.0.0.1:{backend}/v1"
decoding = "autoregressive"
models = ["m", "*"]
prices = [{{ model = "m", input = "0.20", cached_input = "0.02", output = "0.75" }}]
"""

_LITELLM = """\
model_list:
  - model_name: m
    litellm_params: {{ model: openai/m, api_base: "http://127.0.0.1:{backend}/v1", api_key: sk-bench }}
"""
