"""How the demo looks: a live table in a terminal, plain lines elsewhere, and a summary that needs no colour."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from proxy.meter.quantile import percentiles

from .board import Board, Tally
from .demo import Proxy, View

_EVERY = 5.0  # seconds between two plain lines


class Scene(View):
    """Shows the demo on `console`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._told = 0.0

    def opened(self, proxy: Proxy) -> None:
        say = self._console.print
        say("[bold]Manometer demo[/bold]: two simulated backends, measured through the proxy. Ctrl-C ends it.\n")
        for name, url in (
            ("live page", f"{proxy.admin}/"),
            ("metrics", f"{proxy.admin}/metrics"),
            ("readings", f"{proxy.admin}/api/requests"),
            ("OpenAI base URL", proxy.base),
        ):
            say(f"  {name:<16} {url}", highlight=False)
        say()
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def shown(self, board: Board, passed: float) -> None:
        if self._live is not None:
            self._live.update(table(board), refresh=True)
        elif passed - self._told >= _EVERY:
            self._told = passed
            counts = ", ".join(f"{name} {tally.ok} ok {tally.failed} failed" for name, tally in board.tallies.items())
            self._console.print(f"{passed:5.1f} s  {counts}", highlight=False)

    def closed(self, board: Board, seconds: float) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._console.print(table(board))
        verdict = "every request was measured" if board.sound else "not everything worked"
        self._console.print(f"\n{seconds:.1f} s: {verdict}.", highlight=False)
        for name, tally in board.tallies.items():
            for outcome in sorted(set(tally.faults)):
                self._console.print(f"  {name}: {tally.faults.count(outcome)} x {outcome}", highlight=False)

    def stop(self) -> None:
        """Give the terminal back, whatever happened."""
        if self._live is not None:
            self._live.stop()


def table(board: Board) -> Table:
    """One column for each backend: it fits a narrow terminal."""
    grid = Table(caption="seconds, P50 / P95, from the proxy's own readings", caption_justify="left")
    grid.add_column("")
    for name, tally in board.tallies.items():
        grid.add_column(f"{name}\n{tally.decoding}", justify="right")
    for title, cell in ROWS:
        grid.add_row(title, *(cell(tally) for tally in board.tallies.values()))
    return grid


def _pair(values: list[float]) -> str:
    found = percentiles(values)
    return "-" if found.p50 is None or found.p95 is None else f"{found.p50:.3f} / {found.p95:.3f}"


def _middle(values: list[float]) -> str:
    found = percentiles(values)
    return "-" if found.p50 is None else f"{found.p50:.0f}"


def _rate(tally: Tally) -> str:
    return "-" if tally.throughput is None else f"{tally.throughput:,.0f}"


ROWS: tuple[tuple[str, Callable[[Tally], str]], ...] = (
    ("ok", lambda tally: str(tally.ok)),
    ("failed", lambda tally: str(tally.failed)),
    ("first token", lambda tally: _pair(tally.ttft)),
    ("silence", lambda tally: _pair(tally.silence)),
    ("whole answer", lambda tally: _pair(tally.e2e)),
    ("largest burst, tokens", lambda tally: _middle(tally.bursts)),
    ("completion tokens", lambda tally: f"{tally.tokens:,}"),
    ("throughput, tokens/s", _rate),
    ("cost, USD", lambda tally: f"{tally.cost:.6f}"),
)
