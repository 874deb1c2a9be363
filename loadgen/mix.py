"""The demo's backends and the traffic for them: mostly chat streams, some of everything else that apps send."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import orjson

from .client import Query
from .decoding import Autoregressive, Diffusion
from .workload import Prompt


@dataclass(frozen=True, slots=True)
class Site:
    """One simulated backend and the traffic for it."""

    name: str
    decoding: str
    model: str
    rate: float  # requests per second
    profile: Any


SITES = (
    Site("mercury", "diffusion", "mercury-2.5", 8.0, Diffusion(models=("mercury-2.5",))),
    Site("ar", "autoregressive", "ar-small", 5.0, Autoregressive(models=("ar-small",))),
)


@dataclass(frozen=True, slots=True)
class Mix:
    """The n-th request to one backend: the same for the same n."""

    model: str
    diffusion: bool
    prompts: tuple[Prompt, ...]

    def __call__(self, n: int) -> Query:
        chance = random.Random(f"{self.model}:{n}")
        prompt = chance.choice(self.prompts)
        body: dict[str, Any] = {"model": self.model, "max_tokens": chance.choice((48, 96, 160, 220))}
        shape = chance.random()
        if shape < 0.1:
            body |= {"prompt": prompt.text, "stream": True, "stream_options": {"include_usage": True}}
            return self._query("/v1/fim/completions" if self.diffusion else "/v1/completions", body)
        body |= {"messages": prompt.conversation()}
        if shape < 0.2:
            return self._query("/v1/chat/completions", body)
        body |= {"stream": True}
        if self.diffusion:
            body |= {"reasoning_effort": chance.choice(("instant", "instant", "low", "medium"))}
            if shape < 0.3:
                body |= {"diffusing": True}
            elif shape < 0.4:
                body |= {"num_denoising_steps": 8, "parallel_tokens": 64}
        return self._query("/v1/chat/completions", body)

    def _query(self, path: str, body: dict[str, Any]) -> Query:
        return Query(
            body=orjson.dumps(body),
            model=self.model,
            path=path,
            stream=body.get("stream") is True,
            replace=body.get("diffusing") is True,
        )
