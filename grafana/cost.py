"""What it costs: per hour, per million output tokens, per request, and how much of the traffic has no price."""

from __future__ import annotations

from proxy import metrics as m

from . import panels as p
from . import queries as q

_PAIR = ("backend", "model")
_BY = ", ".join(_PAIR)


def rows() -> list[tuple[int, list[p.Json]]]:
    return [
        (4, _tiles()),
        (8, [_table()]),
        (1, [p.row("Priced by token")]),
        (8, [_per_hour(), _per_million(), _per_request()]),
        (1, [p.row("Priced by instance")]),
        (8, [_instance(), _instance_per_million()]),
        (1, [p.row("What the price is for, and what is missing")]),
        (8, [_tokens(), _missing(), _copies()]),
    ]


def _cost(by: str = "", over: str = q.WINDOW) -> str:
    return q.rate(m.COST, q.TRAFFIC, by=by, over=over)


def _million(by: str = "", over: str = q.WINDOW) -> str:
    return q.per_million(q.TRAFFIC, by=by, over=over)


def _request(by: str = "", over: str = q.WINDOW) -> str:
    return q.ratio(_cost(by, over), q.rate(m.REQUESTS, q.TRAFFIC, by=by, over=over))


def _unpriced(by: str = "", over: str = q.WINDOW) -> str:
    return q.ratio(q.rate(m.UNPRICED, q.TRAFFIC, by=by, over=over), q.rate(m.REQUESTS, q.TRAFFIC, by=by, over=over))


def _unreported(by: str = "", over: str = q.WINDOW) -> str:
    return q.ratio(
        q.rate(m.USAGE_MISSING, q.TRAFFIC, by=by, over=over), q.rate(m.REQUESTS, q.TRAFFIC, by=by, over=over)
    )


def _hourly() -> str:
    # Every proxy tells the same price: it is one instance for all of them.
    return f"max by (backend) ({q.select(m.INSTANCE_PRICE)})"


def _tiles() -> list[p.Json]:
    spent = q.total(f"increase({q.select(m.COST, q.TRAFFIC)}[{q.RANGE}])")
    return [
        p.stat("Spent", "Over the whole time range.", "currencyUSD", spent),
        p.stat("Cost per hour", "At the present rate.", "currencyUSD", f"{_cost()} * 3600"),
        p.stat(
            "Per million output tokens",
            "Cost / completion tokens, of what has a price.",
            "currencyUSD",
            _million(over=q.RANGE),
        ),
        p.stat(
            "Per request", "Cost / exchanges, failed ones included.", "currencyUSD", _request(over=q.RANGE), decimals=6
        ),
        p.stat(
            "Without a price",
            "Share of exchanges with tokens but no price: their cost is missing above.",
            "percentunit",
            _unpriced(over=q.RANGE),
            warn=(0.001, 0.05),
        ),
        p.stat(
            "Without a token count",
            "Share of exchanges whose backend reported no tokens: their cost is missing above.",
            "percentunit",
            _unreported(over=q.RANGE),
            warn=(0.001, 0.05),
        ),
    ]


def _table() -> p.Json:
    over = q.RANGE
    columns = [
        ("Spent", "currencyUSD", q.total(f"increase({q.select(m.COST, q.TRAFFIC)}[{over}])", _BY)),
        ("Per hour", "currencyUSD", f"{_cost(_BY, over)} * 3600"),
        ("Per million", "currencyUSD", _million(_BY, over)),
        ("Per request", "currencyUSD", _request(_BY, over)),
        ("Requests", "reqps", q.rate(m.REQUESTS, q.TRAFFIC, q.CHOSEN, by=_BY, over=over)),
        ("Output", "count:tok/s", q.rate(m.TOKENS, q.TRAFFIC, *q.OUTPUT, by=_BY, over=over)),
        ("Without a price", "percentunit", _unpriced(_BY, over)),
        ("Without a token count", "percentunit", _unreported(_BY, over)),
    ]
    return p.table("By backend and model", "Over the whole time range, at token prices.", _PAIR, columns)


def _lines(
    title: str, about: str, unit: str, expr: str, legend: str = "{{backend}} {{model}}", stack: bool = False
) -> p.Json:
    return p.lines(title, about, unit, [p.target(expr, legend)], stack=stack)


def _per_hour() -> p.Json:
    about = "What an hour at the present rate costs, by the tokens' prices."
    return _lines("Cost per hour by model", about, "currencyUSD", f"{_cost(_BY)} * 3600", stack=True)


def _per_million() -> p.Json:
    about = "Cost / completion tokens of what has a price; what input costs is spread over the output."
    return _lines("Cost per million output tokens", about, "currencyUSD", _million(_BY))


def _per_request() -> p.Json:
    return _lines("Cost per request", "Cost / exchanges, failed ones included.", "currencyUSD", _request(_BY))


def _instance() -> p.Json:
    about = "Configured price of a self-hosted backend's instance for one hour: it costs this at any load."
    targets = [p.target(_hourly(), "{{backend}}")]
    return p.lines("Instance per hour", about, "currencyUSD", targets, empty="No instance has a price")


def _instance_per_million() -> p.Json:
    output = q.rate(m.TOKENS, q.TRAFFIC, *q.OUTPUT, by="backend")
    about = "Price per hour / completion tokens per hour: the better the load, the cheaper the token."
    targets = [p.target(f"{q.ratio(_hourly(), f'{output} * 3600')} * 1e6", "{{backend}}")]
    return p.lines("Instance cost per million output tokens", about, "currencyUSD", targets)


def _tokens() -> p.Json:
    expr = q.rate(m.TOKENS, q.TRAFFIC, 'source="reported"', by="type")
    about = "Tokens per second by kind. cached is part of prompt and reasoning of completion: do not add them up."
    return _lines("Tokens", about, "count:tok/s", expr, "{{type}}")


def _missing() -> p.Json:
    targets = [
        p.target(_unpriced("backend"), "{{backend}} no price"),
        p.target(_unreported("backend"), "{{backend}} no count"),
    ]
    about = "Share of exchanges whose cost is unknown, by why: no price for the model, or no token count."
    return p.lines("Cost unknown", about, "percentunit", targets)


def _copies() -> p.Json:
    expr = f"{q.rate(m.COST, q.TRAFFIC, by='mirror')} * 3600"
    about = "Cost per hour of shadow copies (true) beside what clients asked for (false)."
    return _lines("Shadow copies", about, "currencyUSD", expr, "mirror {{mirror}}")
