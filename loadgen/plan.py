"""From options to what is sent: the questions, and when they go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from . import workload
from .client import Query
from .options import Options, Refused
from .schedule import Closed, Open
from .workload import Prompt, Question, Workload


@dataclass(frozen=True)
class Ask:
    """The n-th request. Plain data: it goes to other processes as it is."""

    work: Workload
    question: Question
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __call__(self, n: int) -> Query:
        question = self.question
        body = question.body(self.work[n])
        replaces = question.extra.get("diffusing") is True
        return Query(body=body, model=question.model, stream=question.stream, replace=replaces, headers=self.headers)


def prompts(spec: str, language: str, seed: int) -> list[Prompt]:
    """`short,code`, `synthetic:500` or a file of JSON lines."""
    languages = {"en": ("en",), "zh": ("zh",), "both": ("en", "zh")}.get(language)
    if languages is None:
        raise Refused(f"--language: en, zh or both, not {language!r}")
    try:
        if spec.startswith("synthetic:"):
            return workload.synthetic(int(spec.removeprefix("synthetic:")), seed=seed)
        names = [part.strip() for part in spec.split(",")]
        if all(name in workload.KINDS for name in names):
            return workload.builtin(names, languages)
        if not Path(spec).is_file():
            raise Refused(f"--prompts: {spec!r} is neither a file nor one of {', '.join(workload.KINDS)}, synthetic:N")
        with Path(spec).open(encoding="utf-8") as lines:
            return workload.read(lines, Path(spec).name)
    except (ValueError, OSError) as error:
        raise Refused(f"--prompts: {error}") from None


def paced(options: Options, concurrency: int) -> Open | Closed:
    """A closed loop, or as many requests a minute as the provider's token limit allows."""
    if not options.otpm:
        return Closed(concurrency)
    # Every answer may be as long as max_tokens; the limit is kept even then.
    return Open.at(options.otpm / 60 / max(1, options.max_tokens), "constant")


def limits(options: Options, model: str, url: str) -> list[str]:
    """Warned of before the load: providers' limits that it is about to meet."""
    if options.otpm or "mercury" not in model.lower():
        return []
    host = urlsplit(url).hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return []
    return ["Mercury's free tier allows 10,000 output tokens a minute: --otpm 10000 paces the load to it"]
