"""Who competes: each a command line, a port and how to see that it is up. All proxy the same backend.

Other people's gateways are taken only where they are installed already: looked for in the folders that
MANOMETER_BENCH_PEERS lists as PATH does, then in PATH, each run by its own executable and without this environment.

1. LiteLLM only in the one release that its makers vouch for: some were malicious, so its version is read from its
   metadata, never by running it.
2. SGLang's gateway is smg today and was sglang-router; either will do.
3. Portkey's streams need @hono/node-server 1.14.1 or older (Portkey-AI/gateway#1389); with a newer one all of them
   fail, and the tables say so.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import process

HERE = Path(__file__).parent
HOST = "127.0.0.1"
LITELLM = "1.106.2"
PEERS_IN = "MANOMETER_BENCH_PEERS"


class NotThere(Exception):
    """A contestant cannot take part. One line that says why."""


@dataclass(slots=True)
class Contestant:
    """A running proxy; `direct` is the backend itself and has no processes."""

    name: str
    port: int
    admin: int | None = None  # manometer's other side
    running: subprocess.Popen[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # that its requests must have

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
    return _start(name, command, where, folder, ready=lambda: _answers(ready), admin=admin, env=_ours(extra))


def naive(backend: int, folder: Path) -> Contestant:
    where = port()
    command = [sys.executable, str(HERE / "naive.py"), str(where), f"http://{HOST}:{backend}"]
    return _start("naive", command, where, folder)


def litellm(backend: int, folder: Path) -> Contestant:
    script = _find("litellm")
    found = _releases(script, "litellm")
    if found != {LITELLM}:
        what = " and ".join(sorted(found)) or "an unknown release"
        raise NotThere(f"there is {what}; only {LITELLM} is run, some others were malicious")
    where = port()
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM.format(backend=backend))
    command = [str(script), "--config", str(config), "--host", HOST, "--port", str(where)]
    return _start(f"litellm {LITELLM}", command, where, folder, env=_bare(folder) | _LITELLM_ENV)


def sglang(backend: int, folder: Path) -> Contestant:
    script = _find("smg", "sglang-router")
    name = next((f"{name} {one}" for name in ("smg", "sglang-router") for one in _releases(script, name)), script.name)
    where = port()
    command = [str(script), "launch", "--host", HOST, "--port", str(where), "--log-level", "warn"]
    command += ["--prometheus-host", HOST, "--prometheus-port", str(port())]
    command += ["--worker-urls", f"http://{HOST}:{backend}"]
    ready = f"http://{HOST}:{where}/readiness"
    return _start(name, command, where, folder, ready=lambda: _answers(ready), env=_bare(folder))


def portkey(backend: int, folder: Path) -> Contestant:
    script = _find("gateway")
    package = script.parent.parent / "package.json"
    facts = json.loads(package.read_text()) if package.is_file() else {}
    if facts.get("name") != "@portkey-ai/gateway":
        raise NotThere("not installed: the gateway that was found is another one")
    where = port()
    command = [str(script), "--headless", f"--port={where}"]
    started = _start(f"portkey {facts['version']}", command, where, folder, env=_bare(folder))
    started.headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://{HOST}:{backend}/v1"}
    return started


PEERS: dict[str, Callable[[int, Path], Contestant]] = {"litellm": litellm, "sglang": sglang, "portkey": portkey}


def _find(*names: str) -> Path:
    """The executable of the first of these names that is there; links are followed to the package that it is of."""
    for name in names:
        if found := shutil.which(name, path=_folders()):
            return Path(found).resolve()
    raise NotThere(f"not installed; {PEERS_IN} may name the bin folder that has {' or '.join(names)}")


def _folders() -> str:
    return os.pathsep.join(filter(None, (os.environ.get(PEERS_IN), os.environ.get("PATH", os.defpath))))


def _releases(script: Path, name: str) -> set[str]:
    """What the metadata beside an executable say of a Python package. Nothing of it is run or imported."""
    places = [str(place) for place in script.parent.parent.glob("lib/python3*/*-packages")]
    return {found.version for found in distributions(name=name, path=places)}


def _bare(folder: Path) -> dict[str, str]:
    """For what others wrote: neither this project's modules nor anybody's keys and settings."""
    return {"PATH": _folders(), "HOME": str(folder), "LANG": "C.UTF-8"}


def _start(
    name: str,
    command: list[str],
    where: int,
    folder: Path,
    *,
    ready: Callable[[], bool] | None = None,
    admin: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Contestant:
    """Start it and wait until it is up; then its processes are known."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        try:
            running = subprocess.Popen(
                command, stdout=out, stderr=out, env=env or _ours(), cwd=folder, start_new_session=True
            )
        except OSError as why:
            raise NotThere(f"did not start: {why}") from None
    started = Contestant(name, where, admin, running)
    deadline = time.monotonic() + 60
    while not (ready() if ready else _connects(where)):
        if running.poll() is not None or time.monotonic() > deadline:
            started.stop()
            raise NotThere(f"did not start: {_last_line(log)}")
        time.sleep(0.05)
    return started


def _ours(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(HERE.parent)} | dict(extra or {})


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

# It listens here only, for a few minutes; and asks nobody for prices.
_LITELLM_ENV = {
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}

_LITELLM = """\
model_list:
  - model_name: m
    litellm_params: {{ model: openai/m, api_base: "http://127.0.0.1:{backend}/v1", api_key: sk-bench }}
"""
