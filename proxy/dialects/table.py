"""What each backend takes, as data: the built-in dialects, each with what it was read from.

Nothing that reads this asks for a dialect's name. `docs/dialects.md` shows it as a table, and a test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .row import Dialect, Field, Messages


def _member(name: str, kind: str = "any", **limits: Any) -> tuple[str, Field]:
    return name, Field(path=(name,), kind=kind, **limits)


def _plain(*names: str) -> dict[str, Field]:
    return dict(_member(name) for name in names)


def _count(*path: str, most: int | None = None) -> Field:
    return Field(path=path, kind="int", least=1, most=most)


_MAX_TOKENS = {"max_completion_tokens": ("max_tokens",)}
_STOP = _member("stop", "list")
_STREAM_OPTIONS = _member("stream_options", "object", members=("include_usage",))

# Inception's published API description, July 2026. Steps and width have no field there.
_MERCURY_EFFORT = Field(
    path=("reasoning_effort",),
    kind="word",
    words=("instant", "low", "medium", "high"),
    aliases={"none": "instant", "minimal": "instant", "xhigh": "high", "max": "high"},
    apis=("chat",),
)
MERCURY = Dialect(
    name="mercury",
    about="Inception's Mercury API",
    fields={
        "length": _count("max_tokens"),
        "effort": _MERCURY_EFFORT,
        "view": Field(path=("diffusing",), apis=("chat",)),
    },
    standard={
        "chat": dict(
            [
                _member("max_tokens", "int", least=1, most=50_000),
                _member("temperature", "number", least=0.5, most=1.0),
                _STOP,
                _member("tool_choice", "word", words=("auto", "required", "none"), aliases={"{}": "required"}),
                _STREAM_OPTIONS,
                ("reasoning_effort", _MERCURY_EFFORT),
            ]
        )
        | _plain("model", "messages", "tools", "stream", "diffusing", "extra_body", "realtime")
        | _plain("response_format", "reasoning_summary", "reasoning_summary_wait"),
        "fim": dict(
            [
                _member("max_tokens", "int", least=1, most=8192),
                _member("top_p", "number", least=0, most=1),
                _member("top_k", "int", least=-1, most=1000),
                _member("frequency_penalty", "number", least=-2, most=2),
                _member("presence_penalty", "number", least=-2, most=2),
                _member("repetition_penalty", "number", least=0),
                _STOP,
                _STREAM_OPTIONS,
            ]
        )
        | _plain("model", "prompt", "suffix", "stream"),
        "edit": dict(
            [
                _member("max_tokens", "int", least=1, most=8192),
                _member("temperature", "number", least=0, most=2),
                _member("top_p", "number", least=0, most=1),
                _member("presence_penalty", "number", least=-2, most=2),
            ]
        )
        | _plain("model", "messages"),
    },
    renames=_MAX_TOKENS,
    messages={
        "chat": Messages(members=("role", "content", "tool_calls", "tool_call_id"), roles={"developer": "system"}),
        "edit": Messages(members=("role", "content")),
    },
)

# The fields that the tutorial shows, for a server that has them.
TUTORIAL = Dialect(
    name="tutorial",
    about="servers with the tutorial's field names",
    fields={
        "steps": _count("num_denoising_steps"),
        "width": _count("parallel_tokens"),
        "length": _count("max_tokens"),
    },
)

# dlmserve 0.1.1: refuses every member that it does not know with 422, and an uneven division with 500.
_DLMSERVE = {
    "steps": _count("num_denoising_steps", most=512),
    "block": _count("block_length"),
    "length": _count("target_length"),  # wins over max_tokens there
}
DLMSERVE = Dialect(
    name="dlmserve",
    about="dlmserve (LLaDA)",
    fields=_DLMSERVE,
    standard={
        "chat": dict(
            [
                _member("max_tokens", "int", least=1),
                _member("temperature", "number", least=0, most=2),
            ]
        )
        | {row.spelled: row for row in _DLMSERVE.values()}
        | _plain("model", "messages", "seed", "stream", "block_schedule", "confidence_metric", "attention_backend")
        | _plain("force_single_batch", "use_local_leap", "local_leap_anchor_threshold")
        | _plain("local_leap_neighbor_threshold", "local_leap_radius"),
    },
    renames=_MAX_TOKENS,
    messages={"chat": Messages(members=("role", "content"), roles={"developer": "system"}, text_only=True)},
    length=128,
    steps=128,
    even=True,
    include_usage=False,
    canvas=True,
    plain_errors=True,
)

# dfastllm 0.0.4: ignores what it does not know; steps are set when it starts.
DFASTLLM = Dialect(
    name="dfastllm",
    about="dfastllm",
    fields={
        "threshold": Field(path=("confidence_threshold",), kind="number", least=0, most=1),
        "length": _count("max_tokens", most=16_384),
    },
    renames=_MAX_TOKENS,
    include_usage=False,
    canvas=True,
    plain_errors=True,
)

# vLLM with a diffusion model: steps are those of one canvas, and stand in vllm_xargs.
VLLM = Dialect(
    name="vllm",
    about="vLLM with a diffusion model",
    fields={
        "steps_per_block": _count("vllm_xargs", "diffusion_max_steps"),
        "block": _count("vllm_xargs", "diffusion_canvas_length"),
        "length": _count("max_tokens"),
        "effort": Field(
            path=("reasoning_effort",),
            kind="word",
            words=("none", "minimal", "low", "medium", "high", "xhigh", "max"),
            aliases={"instant": "none"},
            apis=("chat",),
        ),
    },
    block=256,
)

# ollada 0.3.0: everything is in `options`, max_tokens is ignored, and so is `stream`.
OLLADA = Dialect(
    name="ollada",
    about="ollada",
    fields={
        "steps": _count("options", "steps"),
        "block": _count("options", "block_length"),
        "length": _count("options", "gen_length"),
        "threshold": Field(path=("options", "threshold"), kind="number", least=0, most=1),
    },
    renames={"max_completion_tokens": ("options", "gen_length"), "max_tokens": ("options", "gen_length")},
    include_usage=False,
    canvas=True,
    plain_errors=True,
    streams=False,
)

# Any other OpenAI-compatible server, autoregressive ones above all: no diffusion parameters.
OPENAI = Dialect(name="openai", about="any other OpenAI-compatible server")

BUILT_IN: Mapping[str, Dialect] = {
    dialect.name: dialect for dialect in (MERCURY, TUTORIAL, DLMSERVE, DFASTLLM, VLLM, OLLADA, OPENAI)
}
