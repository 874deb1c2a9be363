"""What load generators say of a server whose truth is known, and what they cost: `manometer load`, AIPerf, GuideLLM.

    python benchmarks/generators.py [--aiperf PROGRAM] [--guidellm PROGRAM] [--rounds 3] [--requests 1024]

The same backend for each, started anew: 64 streams, 64 events of one token, 25 ms to the first, 5 ms between. The
contestants take turns within a round; the others take part only where they are installed. CPU is of the whole
process tree, start and report included, per event of the answers.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
# The least that the others need of a tokenizer: the tokens are the server's own count.
_WORDS = {"[UNK]": 0, "hi": 1}
_TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": _WORDS, "unk_token": "[UNK]"},
}


@dataclass(frozen=True)
class Told:
    """What one generator said, and what it took. Milliseconds, microseconds per event, seconds."""

    p50: float
    mean: float
    cpu: float
    wall: float
    truth: float  # P50 of the server's own send times

    @property
    def error(self) -> float:
        return self.p50 - self.truth


@dataclass(frozen=True)
class Generator:
    """A contestant: its command for a URL and a folder, and where it left its numbers (p50, mean)."""

    name: str
    command: Callable[[str, Path, argparse.Namespace], list[str]]
    read: Callable[[Path, str], tuple[float, float]]


def manometer(url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    amount = ["-c", str(options.streams), "-n", str(options.requests), "--warmup", "0"]
    length = ["--max-tokens", str(options.events), "--extra", "ignore_eos=true"]
    return [sys.executable, "-m", "loadgen.cli", "load", "-u", url, *amount, *length, "--json", "--out", str(folder)]


def manometer_said(folder: Path, stdout: str) -> tuple[float, float]:
    found = json.loads(stdout.strip().splitlines()[-1])
    rows = [json.loads(line) for line in Path(found["folder"], "readings.jsonl").read_text().splitlines()]
    return found["ttft"]["p50"] * 1000, sum(row["ttft"] for row in rows) / len(rows) * 1000


def aiperf(url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    (folder / "asked.jsonl").write_text('{"text": "hi"}\n')
    amount = ["--concurrency", str(options.streams), "--request-count", str(options.requests)]
    body = ["--extra-inputs", "ignore_eos:true", "--extra-inputs", f"max_tokens:{options.events}"]
    return [
        options.aiperf, "profile", "-m", "ar-small", "-u", url.removesuffix("/v1"), "--endpoint-type", "chat",
        "--streaming", *amount, *body, "--use-server-token-count", "--use-legacy-max-tokens", "--tokenizer",
        str(tokenizer(folder)), "--input-file", str(folder / "asked.jsonl"), "--custom-dataset-type", "single_turn",
        "--artifact-dir", str(folder / "said"), "--ui", "none",
    ]  # fmt: skip


def aiperf_said(folder: Path, stdout: str) -> tuple[float, float]:
    found = json.loads((folder / "said" / "profile_export_aiperf.json").read_text())["time_to_first_token"]
    return found["p50"], found["avg"]


def guidellm(url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    rows = ({"prompt": f"hi {n}", "output_tokens_count": options.events} for n in range(options.requests + 100))
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        options.guidellm, "run", "--backend", f"kind=openai_http,target={url.removesuffix('/v1')},model=ar-small",
        "--profile", f"kind=concurrent,streams={options.streams}",
        "--constraint", f"kind=max_requests,count={options.requests}",
        "--data", f"kind=json_file,path={folder / 'asked.jsonl'}",
        "--tokenizer", f"kind=huggingface_auto,model={tokenizer(folder)}",
        "--output", f"kind=json,path={folder / 'said.json'}", "--disable-console",
    ]  # fmt: skip


def guidellm_said(folder: Path, stdout: str) -> tuple[float, float]:
    (only,) = json.loads((folder / "said.json").read_text())["benchmarks"]
    found = only["metrics"]["time_to_first_token_ms"]["successful"]
    return found["median"], found["mean"]


def tokenizer(folder: Path) -> Path:
    place = folder / "tokenizer"
    place.mkdir()
    (place / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (place / "tokenizer_config.json").write_text(json.dumps(told))
    return place


def measure(generator: Generator, options: argparse.Namespace) -> Told:
    """One generator against a fresh backend."""
    serve = [sys.executable, str(HERE / "client_cpu.py"), "--serve"]
    for name in ("streams", "requests", "events"):
        serve += [f"--{name}", str(getattr(options, name))]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*serve, "--gap", "5", "--first", "25"], stdin=pipe, stdout=pipe, text=True) as server,
    ):
        assert server.stdin is not None and server.stdout is not None
        url = server.stdout.readline().strip()
        command = generator.command(url, Path(folder), options)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        server.stdin.close()
        truth = json.loads(server.stdout.read())["ttft_p50"] * 1000
        if ended.returncode:
            raise RuntimeError(f"{generator.name} failed: {(ended.stderr or ended.stdout).strip()[-500:]}")
        p50, mean = generator.read(Path(folder), ended.stdout)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Told(p50, mean, used / (options.requests * options.events) * 1e6, wall, truth)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiperf", default=shutil.which("aiperf"), help="its program, if not on the path")
    parser.add_argument("--guidellm", default=shutil.which("guidellm"), help="its program, if not on the path")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--events", type=int, default=64)
    options = parser.parse_args()
    contestants = [Generator("manometer", manometer, manometer_said)]
    contestants += [Generator("AIPerf", aiperf, aiperf_said)] if options.aiperf else []
    contestants += [Generator("GuideLLM", guidellm, guidellm_said)] if options.guidellm else []
    told: dict[str, list[Told]] = {generator.name: [] for generator in contestants}
    for _ in range(options.rounds):
        for generator in contestants:
            told[generator.name].append(measure(generator, options))
    print("| generator | first token P50, ms | mean | error of P50 | CPU per event, us | wall, s | CPU, ratio |")
    print("|---|---|---|---|---|---|---|")
    ours = median(one.cpu for one in told["manometer"])
    for name, runs in told.items():
        figures = [median(getattr(one, field) for one in runs) for field in ("p50", "mean", "error", "cpu", "wall")]
        print(f"| {name} | " + " | ".join(f"{figure:,.1f}" for figure in figures) + f" | {figures[3] / ours:.1f} |")
    truth = median(one.truth for runs in told.values() for one in runs)
    print(f"\nThe server sent its first token after {truth:.1f} ms (P50); medians of {options.rounds} rounds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
