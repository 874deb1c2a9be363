"""What backends say of themselves: the models that they list, and their prices, for those configured to `discover`.

It happens once, at start and at a reload, before anything else sees the configuration: so labels, routing and costs
know these models as if the file named them. What the file says wins. A backend that does not answer in time is
taken as configured, and the log says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from .fetch import fetch
from .gateway import pool
from .meter import grammar
from .settings import Backend, PriceRow, Settings
from .upstream import Request, UpstreamFault

_PATIENCE = 5.0
_LIMIT = 1000
_PER_MILLION = Decimal(1_000_000)


class Unknown(Exception):
    """A backend did not tell. One line."""


async def discover(settings: Settings) -> tuple[Settings, list[str]]:
    """The configuration with what was found, and a line for each backend that did not tell."""
    names = [name for name, backend in settings.backends.items() if backend.discover]
    found = await asyncio.gather(*(_ask(settings.backends[name]) for name in names), return_exceptions=True)
    backends, silent = dict(settings.backends), []
    for name, rows in zip(names, found, strict=True):
        if isinstance(rows, Unknown):
            silent.append(f"backends.{name}: {rows}")
        elif isinstance(rows, BaseException):
            raise rows
        else:
            backends[name] = learned(backends[name], rows)
    return settings.model_copy(update={"backends": backends}), silent


def learned(backend: Backend, rows: Iterable[Any]) -> Backend:
    """The backend with the models of its list, and a price for each that has none in the file."""
    rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str) and row["id"]][:_LIMIT]
    priced = {row.model for row in backend.prices}
    prices = [price for row in rows if row["id"] not in priced and (price := _price(row["id"], row.get("pricing")))]
    models = dict.fromkeys((*backend.models, *(row["id"] for row in rows)))
    return backend.model_copy(update={"models": tuple(models), "prices": (*backend.prices, *prices)})


def _price(model: str, pricing: Any) -> PriceRow | None:
    """Prices per token, as text, become prices per million."""
    if not isinstance(pricing, Mapping):
        return None
    prompt, output = _amount(pricing.get("prompt")), _amount(pricing.get("completion"))
    if prompt is None or output is None:
        return None
    cached = _amount(pricing.get("input_cache_reads"))
    return PriceRow(model=model, input=prompt, output=output, cached_input=cached or None)


def _amount(text: Any) -> Decimal | None:
    try:
        amount = Decimal(str(text)) * _PER_MILLION
    except InvalidOperation:
        return None
    return amount.normalize() + 0 if amount.is_finite() and amount >= 0 else None


async def _ask(backend: Backend) -> list[Any]:
    asked = pool(backend)
    headers = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    if backend.secret:
        headers.append((b"authorization", b"Bearer " + backend.secret.encode()))
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = await fetch(asked, Request(b"GET", backend.origin.target("/v1/models"), headers))
        doc = grammar.loads(answer.body) if answer.status == 200 else None
    except TimeoutError:
        raise Unknown(f"discover: no list of models within {_PATIENCE:g} s") from None
    except UpstreamFault as fault:
        raise Unknown(f"discover: {fault.message}") from None
    except grammar.Unreadable:
        doc = None
    finally:
        await asked.close()
    data = doc.get("data") if isinstance(doc, dict) else None
    if not isinstance(data, list):
        raise Unknown(f"discover: /models answered {answer.status} and no list")
    return data
