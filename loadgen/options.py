"""What the commands that load a server have in common, said once: one dataclass, laid beside each command's own.

Names follow what users of AIPerf, GuideLLM and vLLM's bench know. Where a value needs reading (`ttft=0.5,e2e=3`),
it is read here, and what cannot be read is one line that names the option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import orjson
import typer

from proxy.meter.cost import Price
from proxy.upstream import Header

from .analysis.metric import METRICS

_SERVER, _ASK, _JUDGE, _RUN = "What is loaded", "What is asked", "How it is judged", "How it runs"


class Refused(Exception):
    """What was asked cannot be done; the message is one line for the user."""


def option(panel: str, *names: str, help: str, envvar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, envvar=envvar, show_default=True)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every loading command."""

    url: Annotated[str, option(_SERVER, "--url", "-u", help="Base URL; by default that of the proxy.")] = (
        "http://127.0.0.1:8080/v1"
    )
    model: Annotated[str, option(_SERVER, "--model", "-m", help="Model; may be left out where there is only one.")] = ""
    backend: Annotated[str, option(_SERVER, "--backend", help="Have the proxy use this backend of its own.")] = ""
    key: Annotated[str, option(_SERVER, "--key", envvar="MANOMETER_KEY", help="API key; better by environment.")] = ""
    header: Annotated[
        list[str] | None, option(_SERVER, "--header", "-H", help="`name: value`, may be given often.")
    ] = None
    decoding: Annotated[str, option(_SERVER, "--decoding", help="diffusion or autoregressive, for the report.")] = ""
    check: Annotated[
        bool, option(_SERVER, "--check/--no-check", help="Ask the server who it is before loading it.")
    ] = True
    prompts: Annotated[
        str,
        option(
            _ASK,
            "--prompts",
            "-p",
            help="Sets (short,long,code,structured,reasoning), synthetic:TOKENS, or a JSONL file.",
        ),
    ] = "short"
    language: Annotated[str, option(_ASK, "--language", help="en, zh or both, of the built-in sets.")] = "both"
    max_tokens: Annotated[int, option(_ASK, "--max-tokens", help="Fixed, or throughputs do not compare.")] = 256
    temperature: Annotated[float, option(_ASK, "--temperature", help="Fixed, or lengths drift.")] = 0.0
    steps: Annotated[int, option(_ASK, "--steps", help="Denoising steps (num_denoising_steps); 0: not sent.")] = 0
    width: Annotated[int, option(_ASK, "--width", help="Tokens decided at once (parallel_tokens); 0: not sent.")] = 0
    effort: Annotated[str, option(_ASK, "--effort", help="reasoning_effort.")] = ""
    extra: Annotated[
        list[str] | None, option(_ASK, "--extra", help="`field=JSON`, sent as it is; may be given often.")
    ] = None
    stream: Annotated[bool, option(_ASK, "--stream/--no-stream", help="Only a stream has a first token.")] = True
    usage: Annotated[
        bool, option(_ASK, "--usage/--no-usage", help="Ask for usage; strict servers refuse stream_options.")
    ] = True
    slo: Annotated[str, option(_JUDGE, "--slo", help="Objectives for goodput: ttft=0.5,e2e=3 (seconds, tokens/s).")] = (
        ""
    )
    price: Annotated[
        str, option(_JUDGE, "--price", help="Per million tokens: input=0.2,output=0.75[,cached=0.02].")
    ] = ""
    instance_price: Annotated[str, option(_JUDGE, "--instance-price", help="Per hour; several with commas.")] = ""
    max_failures: Annotated[
        str, option(_JUDGE, "--max-failures", help="Failed requests (or 5%) above which the exit status is 1.")
    ] = "0"
    run_code: Annotated[
        bool, option(_JUDGE, "--run-code", help="Run answered code against its tests, in a limited process.")
    ] = False
    seed: Annotated[int, option(_RUN, "--seed", help="Same seed, same requests.")] = 0
    processes: Annotated[int, option(_RUN, "--processes", help="When one core is not enough for the client.")] = 1
    warmup: Annotated[
        int, option(_RUN, "--warmup", help="Requests left out at the start; -1: one for each client.")
    ] = -1
    timeout: Annotated[float, option(_RUN, "--timeout", help="Seconds that one answer may take.")] = 600.0
    deadline: Annotated[float, option(_RUN, "--deadline", help="Seconds after which a level ends; 0: none.")] = 0.0
    otpm: Annotated[
        float, option(_RUN, "--otpm", help="Output tokens a minute that the provider allows; 0: no pacing.")
    ] = 0.0
    out: Annotated[Path, option(_RUN, "--out", help="Where the run's folder is made.")] = Path("runs")
    name: Annotated[str, option(_RUN, "--name", help="Of the run.")] = ""
    save: Annotated[bool, option(_RUN, "--save/--no-save", help="Write the run's folder with its report.")] = True
    json: Annotated[bool, option(_RUN, "--json", help="One JSON object on the last line of stdout.")] = False

    def verify(self) -> None:
        """Read every value once, so that what cannot be read is refused before the run and not after it."""
        for read in ("headers", "fields", "slos", "prices", "instances"):
            getattr(self, read)
        self.failures_allowed(1)
        for name in ("max_tokens", "otpm", "deadline", "steps", "width"):
            if getattr(self, name) < 0:
                raise Refused(f"--{name.replace('_', '-')} must not be below 0")
        for name in ("processes", "timeout"):
            if getattr(self, name) <= 0:
                raise Refused(f"--{name} must be above 0")

    def told(self) -> dict[str, Any]:
        """For the report: everything but the key and what headers say."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        names = [line.partition(":")[0] for line in self.header or ()]
        return given | {"key": "given" if self.key else "", "header": names, "out": str(self.out)}

    @property
    def headers(self) -> tuple[Header, ...]:
        pairs = []
        for line in self.header or ():
            name, colon, value = line.partition(":")
            if not colon or not name.strip() or "\n" in line or "\r" in line:
                raise Refused(f"--header: expected `name: value`, not {name!r}")
            pairs.append((name.strip().lower().encode(), value.strip().encode()))
        force = [(b"x-manometer-backend", self.backend.encode())] if self.backend else []
        return (*pairs, *force)

    @property
    def fields(self) -> dict[str, Any]:
        """Diffusion parameters and extra fields, as they are sent."""
        known = {"num_denoising_steps": self.steps, "parallel_tokens": self.width, "reasoning_effort": self.effort}
        sent: dict[str, Any] = {name: value for name, value in known.items() if value}
        for line in self.extra or ():
            name, equals, value = line.partition("=")
            if not equals:
                raise Refused(f"--extra: expected `field=JSON`, not {line!r}")
            try:
                sent[name.strip()] = orjson.loads(value)
            except orjson.JSONDecodeError:
                sent[name.strip()] = value
        return sent

    @property
    def slos(self) -> dict[str, float]:
        bounds = _pairs("--slo", self.slo)
        for name in bounds:
            if name not in METRICS:
                raise Refused(f"--slo: no metric {name!r}; there are {', '.join(METRICS)}")
        return {name: float(value) for name, value in bounds.items()}

    @property
    def prices(self) -> tuple[Price, ...]:
        given = _pairs("--price", self.price)
        if not given:
            return ()
        if unknown := given.keys() - {"input", "output", "cached"}:
            raise Refused(f"--price: {', '.join(sorted(unknown))} is not input, output or cached")
        if not {"input", "output"} <= given.keys():
            raise Refused("--price: give both input and output, per million tokens")
        return (Price(model="*", input=given["input"], output=given["output"], cached_input=given.get("cached")),)

    @property
    def instances(self) -> tuple[Decimal, ...]:
        return tuple(_decimal("--instance-price", part) for part in self.instance_price.split(",") if part.strip())

    def failures_allowed(self, requests: int) -> float:
        text = self.max_failures.strip()
        try:
            return float(text.removesuffix("%")) / 100 * requests if text.endswith("%") else int(text)
        except ValueError:
            raise Refused(f"--max-failures: expected a number or a share such as 5%, not {text!r}") from None


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of (options, its own ...) becomes a command whose signature has `Options`' fields too.

    Its own parameter takes the place of a shared one of the same name: `sweep` takes lists where others take a number.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    mine = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    hints = get_type_hints(Options, include_extras=True)
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(Options)
        if f.name not in {p.name for p in mine}
    ]

    def run(**given: Any) -> None:
        common = Options(**{p.name: given.pop(p.name) for p in shared})
        try:
            status = function(common, **given)
        except Refused as refusal:
            typer.echo(f"manometer: {refusal}", err=True)
            raise typer.Exit(2) from None
        raise typer.Exit(status or 0)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {p.name: p.annotation for p in (*mine, *shared)}
    run.__signature__ = inspect.Signature([*mine, *shared])  # type: ignore[attr-defined]
    return run


def _pairs(name: str, text: str) -> dict[str, Decimal]:
    found = {}
    for part in text.split(","):
        if part.strip():
            key, equals, value = part.partition("=")
            if not equals:
                raise Refused(f"{name}: expected `name=number`, not {part.strip()!r}")
            found[key.strip()] = _decimal(name, value)
    return found


def _decimal(name: str, text: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise Refused(f"{name}: {text.strip()!r} is no number") from None
    if not value.is_finite() or value < 0:
        raise Refused(f"{name}: {text.strip()!r} must be a finite number, not below 0")
    return value


def numbers(name: str, text: str) -> list[int]:
    """`1,2,4` -> [1, 2, 4]; whole and above 0, in the order given, each once."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise Refused(f"{name}: expected whole numbers with commas, not {text!r}") from None
    if any(value < 1 for value in found):
        raise Refused(f"{name}: every number must be at least 1")
    return list(dict.fromkeys(found))
