"""Takes the pictures of the live page in docs/img: both widths, both themes. Run by `make screenshots`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from aiohttp.test_utils import TestServer

# Run as a script, the folder of this file is on the path, not the project's.
sys.path.insert(0, str(Path(__file__).parent.parent))

from proxy.admin import make_admin
from proxy.ring import Ring
from tests.chromium import PROGRAM, chromium
from tests.traffic import AR, MERCURY, NOW, busy, opening

IMAGES = Path(__file__).parent.parent / "docs" / "img"


def ring() -> Ring:
    """Five minutes of traffic, and some of it still in flight."""
    kept = Ring((MERCURY, AR), since=NOW - 1000)
    for reading in busy():
        kept.finished(reading)
    for i in range(5):
        kept.opened(opening(f"open{i}", started_at=NOW - 0.8 * i, backend="ar" if i % 3 else "mercury"))
    return kept


async def take(save: Callable[[str, bytes], object]) -> None:
    kept = ring()
    shown = next(e.reading for e in kept.newest() if e.reading.decoding == "diffusion" and e.reading.stalls)
    app = make_admin(kept, lambda _: ("text/plain", b""), version="0.1.0", clock=lambda: NOW)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    try:
        async with chromium() as tab:
            for width, height in ((1280, 900), (400, 800)):
                for theme in ("light", "dark"):
                    page = await tab(str(server.make_url("/")), width, height, theme == "dark")
                    await page.until("document.querySelectorAll('[data-drawn=plotly] .main-svg').length >= 4")
                    await page.until("document.querySelectorAll('#requests tbody tr').length === 24")
                    save(f"live-{width}-{theme}.png", await page.shoot())
                    await page.go(str(server.make_url(f"/requests/{shown.id}")))
                    await page.until("document.querySelectorAll('[data-drawn=plotly] .main-svg').length >= 2")
                    save(f"request-{width}-{theme}.png", await page.shoot())
                    if page.complaints:
                        raise SystemExit(f"the page complained: {page.complaints}")
    finally:
        await server.close()


def main() -> None:
    if PROGRAM is None:
        raise SystemExit("Chromium is not installed: apt install chromium")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(lambda name, picture: (folder / name).write_bytes(picture)))


if __name__ == "__main__":
    main()
