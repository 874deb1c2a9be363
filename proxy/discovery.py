"""What backends say of themselves: the models that they list, and their prices, for those configured to `discover`.

It happens once, at start and at a reload, before anything else sees the configuration: so labels, routing and costs
know these models as if the file named them. What the file says wins. A backend that does not answer in time is
taken as configured, and the log says so.
"""

from __future__ import annotations

import asyncio

from .catalog import Catalog
from .fetch import fetch
from .gateway import pool
from .meter import Price, grammar
from .settings import Backend, PriceRow, Settings
from .upstream import Request, UpstreamFault

_PATIENCE = 5.0


class Unknown(Exception):
    """A backend did not tell. One line."""


async def discover(settings: Settings) -> tuple[Settings, list[str]]:
    """The configuration with what was found, and a line for each backend that did not tell."""
    names = [name for name, backend in settings.backends.items() if backend.discover]
    found = await asyncio.gather(*(_ask(settings.backends[name]) for name in names), return_exceptions=True)
    backends, silent = dict(settings.backends), []
    for name, catalog in zip(names, found, strict=True):
        if isinstance(catalog, Unknown):
            silent.append(f"backends.{name}: {catalog}")
        elif isinstance(catalog, BaseException):
            raise catalog
        else:
            backends[name] = learned(backends[name], catalog)
    return settings.model_copy(update={"backends": backends}), silent


def learned(backend: Backend, catalog: Catalog) -> Backend:
    """The backend with the models of its list, and a price for each that has none in the file."""
    own = {row.model for row in backend.prices}
    prices = [_row(price) for price in catalog.prices if price.model not in own]
    models = dict.fromkeys((*backend.models, *catalog.models))
    return backend.model_copy(update={"models": tuple(models), "prices": (*backend.prices, *prices)})


def _row(price: Price) -> PriceRow:
    return PriceRow(model=price.model, input=price.input, output=price.output, cached_input=price.cached_input)


async def _ask(backend: Backend) -> Catalog:
    asked = pool(backend)
    headers = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    if backend.secret:
        headers.append((b"authorization", b"Bearer " + backend.secret.encode()))
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = await fetch(asked, Request(b"GET", backend.origin.target("/v1/models"), headers))
        catalog = Catalog.of(grammar.loads(answer.body)) if answer.status == 200 else Catalog()
    except TimeoutError:
        raise Unknown(f"discover: no list of models within {_PATIENCE:g} s") from None
    except UpstreamFault as fault:
        raise Unknown(f"discover: {fault.message}") from None
    except grammar.Unreadable:
        catalog = Catalog()
    finally:
        await asked.close()
    if not catalog.models:
        raise Unknown(f"discover: /models answered {answer.status} and no list")
    return catalog
