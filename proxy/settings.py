"""The configuration: read once, validated, frozen. Nothing else reads files or the environment.

1. One file, or none. `manometer.toml` (or --config, or MANOMETER_CONFIG), every field also from the
   environment (MANOMETER_LISTEN__ADDRESS=…); without a file, the tutorial's variables make the backends:
   MERCURY_API_KEY, MERCURY_BASE_URL, MERCURY_MODEL, and AR_API_KEY, AR_BASE_URL, AR_MODEL.
2. What can't work is refused at start, in one line that names the field and says what to do.
3. Secrets are SecretStr from here on: `env:NAME` is resolved here and shown nowhere.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from .dialects import Dialect, DialectError, resolve
from .meter import Book, Price
from .origin import Origin

MERCURY = "https://api.inceptionlabs.ai/v1"
DEFAULT_FILE = Path("manometer.toml")


class ConfigError(ValueError):
    """The configuration can't be used. One line for each fault, naming the field."""


def _secret(value: Any) -> Any:
    """`env:NAME` is the value of that variable. A line break at the end, as files have one, is no part of a key."""
    if isinstance(value, str) and value.startswith("env:"):
        name = value[4:]
        if not os.environ.get(name):
            raise ValueError(f"the environment variable {name} is not set: set it, or write another key")
        value = os.environ[name]
    if isinstance(value, str):
        value = value.strip()
        if not value.isprintable():
            raise ValueError("a key goes into a header: it can hold no line breaks or control characters")
    return value


def _moment(value: Any) -> datetime | None:
    """A day is its midnight; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("write a day such as 2026-09-08, or a time such as 2026-09-08T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Secret = Annotated[SecretStr, BeforeValidator(_secret)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Listen(_Frozen):
    """Where the proxy listens."""

    address: str = "127.0.0.1:8080"
    admin: str = "127.0.0.1:9464"
    workers: int = Field(default=1, ge=1, le=64)
    body_limit: int = Field(default=32 * 1024 * 1024, gt=0)
    drain: Seconds = 30.0

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        for name in ("address", "admin"):
            address(getattr(self, name), name)
        return self


def address(text: str, name: str = "address") -> tuple[str, int]:
    """`host:port` -> (host, port). Raises ValueError in one line."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{name}: write HOST:PORT, such as 127.0.0.1:8080, not {text!r}")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Limits(_Frozen):
    """Time limits of a backend, in seconds; 0 means none."""

    connect: float = Field(default=5.0, ge=0)
    first_output: float = Field(default=120.0, ge=0)
    idle: float = Field(default=120.0, ge=0)
    total: float = Field(default=600.0, ge=0)


class PriceRow(_Frozen):
    """What a model costs from a day on, per million tokens."""

    model: str = Field(min_length=1)
    start: Annotated[datetime | None, BeforeValidator(_moment)] = Field(default=None, alias="from")
    input: Decimal = Field(ge=0)
    cached_input: Decimal | None = Field(default=None, ge=0)
    output: Decimal = Field(ge=0)
    currency: str = Field(default="USD", pattern="^[A-Z]{3}$")

    @property
    def price(self) -> Price:
        return Price(
            model=self.model,
            start=self.start.timestamp() if self.start else 0.0,
            input=self.input,
            output=self.output,
            cached_input=self.cached_input,
            currency=self.currency,
        )


_DIFFUSION_DIALECTS = frozenset({"mercury", "tutorial", "dlmserve", "dfastllm", "ollada"})


class Backend(_Frozen):
    """One OpenAI-compatible server."""

    url: str
    key: Secret | None = None
    decoding: Literal["diffusion", "autoregressive"] | None = None
    dialect: str = "openai"
    models: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    usage: Literal["inject", "as-asked"] | None = None
    unsupported: Literal["drop", "reject"] = "drop"
    fields: dict[str, Any] = {}
    timeouts: Limits = Limits()
    prices: tuple[PriceRow, ...] = ()
    instance_per_hour: Decimal = Field(default=Decimal(0), ge=0)
    discover: bool = False
    ca_file: Path | None = None
    client_cert: Path | None = None
    proxy: str | None = None
    verify: bool = True
    keep_alive: int = Field(default=256, ge=0)

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        _ = self.origin  # raises ValueError, and names the field
        return self

    @cached_property
    def origin(self) -> Origin:
        return Origin.of(
            self.url, ca_file=self.ca_file, client_cert=self.client_cert, proxy=self.proxy, verify=self.verify
        )

    @property
    def passthrough(self) -> bool:
        """The client's own key goes on to the backend."""
        return self.key is None or self.key.get_secret_value() == "passthrough"

    @property
    def secret(self) -> str | None:
        return None if self.passthrough or self.key is None else self.key.get_secret_value()

    @property
    def kind(self) -> str:
        """diffusion or autoregressive: as configured, or as the dialect suggests."""
        return self.decoding or ("diffusion" if self.dialect in _DIFFUSION_DIALECTS else "autoregressive")

    @property
    def named_models(self) -> tuple[str, ...]:
        return tuple(model for model in self.models if model != "*")

    @cached_property
    def book(self) -> Book:
        return Book(row.price for row in self.prices)

    def __getstate__(self) -> dict[Any, Any]:
        """Without what is made on demand: a TLS context can't travel to a forwarder."""
        state = super().__getstate__()
        hidden = {"origin", "book"}
        return state | {"__dict__": {k: v for k, v in state["__dict__"].items() if k not in hidden}}


class Mirror(_Frozen):
    """A sampled copy of a route's requests."""

    to: str
    share: Share = 0.05
    max_in_flight: int = Field(default=16, ge=1)
    max_cost_per_hour: Decimal | None = Field(default=None, ge=0)


class Route(_Frozen):
    """A public model name."""

    split: dict[str, Share] = Field(min_length=1)
    sticky: str = Field(default="user", pattern="^(user|session|key|none|header:.+)$")
    mirror: Mirror | None = None
    fallback: tuple[str, ...] = ()
    diffusion: dict[str, Any] = {}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(sum(self.split.values()) - 1) > 1e-6:
            raise ValueError(f"split: the shares must add up to 1, not {sum(self.split.values()):g}")
        return self


class Measure(_Frozen):
    """How much is kept."""

    stall: Seconds = 0.5
    readings: int = Field(default=2000, ge=1, le=1_000_000)
    series: int = Field(default=20_000, ge=100)
    journal: bool = True


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="MANOMETER_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    listen: Listen = Listen()
    measure: Measure = Measure()
    backends: dict[str, Backend] = {}
    routes: dict[str, Route] = {}
    dialects: dict[str, dict[str, Any]] = {}
    clients: dict[str, Secret] = {}
    allow_anonymous: bool = False

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.backends:
            raise ValueError(
                "backends: none is configured. Set MERCURY_API_KEY (and AR_BASE_URL for the other side), "
                "or write a manometer.toml with [backends.NAME]"
            )
        takers = [name for name, backend in self.backends.items() if "*" in backend.models]
        if len(takers) > 1:
            raise ValueError(f'backends: only one may take every model ("*"), not {" and ".join(takers)}')
        self._check_names()
        for name, route in self.routes.items():
            self._check_route(name, route)
        self._check_exposure()
        for name, backend in self.backends.items():
            try:
                self.dialect(backend)
            except DialectError as error:
                raise ValueError(f"backends.{name}.{error}") from None
            if self.clients and backend.key is not None and backend.passthrough:
                raise ValueError(
                    f"backends.{name}.key: passthrough and [clients] don't go together: the clients' keys are for "
                    "this proxy, and would be sent on"
                )
        return self

    def dialect(self, backend: Backend) -> Dialect:
        """The backend's dialect with its overrides. Raises DialectError."""
        return resolve(backend.dialect, self.dialects, backend.fields)

    def _check_names(self) -> None:
        """Backends' names become labels and headers, and stand before the slash in `backend/model`."""
        for name in self.backends:
            if not re.fullmatch(r"[\w.-]+", name):
                raise ValueError(f"backends.{name!r}: a backend's name is of letters, digits, '.', '-' and '_'")
        for section, names in (("routes", self.routes), ("clients", self.clients)):
            for name in names:
                if not name or not name.isprintable():
                    raise ValueError(f"{section}.{name!r}: a name needs characters that can be printed")
        keys: set[str] = set()
        for name, key in self.clients.items():
            secret = key.get_secret_value()
            if not secret or secret in keys:
                raise ValueError(f"clients.{name}: {'is the key of another client' if secret else 'is an empty key'}")
            keys.add(secret)

    def _check_route(self, name: str, route: Route) -> None:
        targets = [("split", t) for t in route.split] + [("fallback", t) for t in route.fallback]
        if route.mirror:
            targets.append(("mirror.to", route.mirror.to))
        for field, target in targets:
            if target.partition("/")[0] not in self.backends:
                known = ", ".join(self.backends)
                raise ValueError(f"routes.{name}.{field}: no backend is called {target!r}; there are: {known}")

    def _check_exposure(self) -> None:
        """An open proxy that holds a key would spend it for everybody who can reach it."""
        host, _ = address(self.listen.address)
        if is_loopback(host) or self.clients or self.allow_anonymous:
            return
        if any(backend.secret for backend in self.backends.values()):
            raise ValueError(
                f"listen.address: {self.listen.address} can be reached by others and backends have keys: "
                "name who may call under [clients], or set allow_anonymous = true"
            )


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The configuration from a file, or from the tutorial's variables. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    named = path or (Path(environ["MANOMETER_CONFIG"]) if environ.get("MANOMETER_CONFIG") else None)
    if named is None and DEFAULT_FILE.is_file():
        named = DEFAULT_FILE
    tree = _read(named) if named else {"backends": _from_variables(environ)}
    try:
        return Settings(**tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(error, named))) from None
    except SettingsError as error:
        raise ConfigError(f"the environment: {error}: write JSON") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no TOML: {error}") from None


def _from_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    backends: dict[str, Any] = {}
    both = _has(environ, "MERCURY") and _has(environ, "AR")
    if _has(environ, "MERCURY"):
        model = environ.get("MERCURY_MODEL") or ("mercury-2.5" if both else "*")
        backends["mercury"] = _backend(environ, "MERCURY", MERCURY, "diffusion", "mercury", model)
    if _has(environ, "AR"):
        backends["ar"] = _backend(environ, "AR", "", "autoregressive", "openai", environ.get("AR_MODEL") or "*")
    return backends


def _has(environ: Mapping[str, str], prefix: str) -> bool:
    return bool(environ.get(f"{prefix}_API_KEY") or environ.get(f"{prefix}_BASE_URL"))


def _backend(
    environ: Mapping[str, str], prefix: str, url: str, decoding: str, dialect: str, model: str
) -> dict[str, Any]:
    url = environ.get(f"{prefix}_BASE_URL") or url
    if not url:
        raise ConfigError(f"{prefix}_BASE_URL: is not set: {prefix}_API_KEY alone does not say which server to call")
    key = {"key": environ[f"{prefix}_API_KEY"]} if environ.get(f"{prefix}_API_KEY") else {}
    return {"url": url, "decoding": decoding, "dialect": dialect, "models": [model], **key}


def _lines(error: ValidationError, path: Path | None) -> list[str]:
    """One line a fault: where, what."""
    lines = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in fault["loc"])
        what = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            what = "is not a setting: check its spelling and its section"
        elif fault["type"] == "missing":
            what = "is missing"
        start = f"{path}: " if path else ""
        lines.append(f"{start}{where}: {what}" if where else f"{start}{what}")
    return lines
