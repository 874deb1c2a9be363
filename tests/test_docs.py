"""docs/configuration.md is held to the settings: every one with its default, and none that is not there."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from proxy.settings import Backend, Limits, Listen, Measure, Mirror, PriceRow, Route, Settings, load

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

SECTIONS: dict[str, type[BaseModel]] = {
    "## Top level": Settings,
    "## `[listen]`": Listen,
    "## `[backends.NAME]`": Backend,
    "### `timeouts`": Limits,
    "### `prices`": PriceRow,
    "## `[routes.NAME]`": Route,
    "### `mirror`": Mirror,
    "## `[measure]`": Measure,
}


def rows(heading: str) -> dict[str, str]:
    """Setting -> default, of the table under this heading."""
    text = PAGE.split(f"\n{heading}\n")[1]
    text = re.split(r"\n##", text)[0]
    return {
        name: default.strip() for name, default in re.findall(r"^\| `([a-z_]+)` \|([^|]*)\| .+ \|$", text, re.MULTILINE)
    }


def documented(default: Any) -> str:
    """A default as the page writes it. Sections of settings have none of their own."""
    if default is PydanticUndefined or isinstance(default, BaseModel):
        return ""
    if default is None:
        return "none"
    if isinstance(default, Decimal):
        return f"`{default}`"
    return f"`{json.dumps(list(default) if isinstance(default, tuple) else default)}`"


def fields(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        top = model is Settings and field.default == {}
        yield field.alias or name, "none" if top else documented(field.default)


@pytest.mark.parametrize("heading, model", SECTIONS.items(), ids=[m.__name__ for m in SECTIONS.values()])
def test_every_setting_is_on_the_page_with_its_default_and_nothing_else_is(
    heading: str, model: type[BaseModel]
) -> None:
    assert rows(heading) == dict(fields(model))


def test_every_table_of_settings_is_held_to_a_model() -> None:
    tables = re.findall(r"^(##+ .+)\n(?:(?!\n##)[\s\S])*?\| setting \| default \|", PAGE, re.MULTILINE)
    assert tables == list(SECTIONS)


def test_every_variable_of_the_start_without_a_file_is_on_the_page() -> None:
    named = set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))
    assert named == {f"{side}_{what}" for side in ("MERCURY", "AR") for what in ("API_KEY", "BASE_URL", "MODEL")}
    values = {name: "http://x/v1" if name.endswith("URL") else f"value-of-{name}" for name in named}
    shown = repr({n: (b.url, b.secret, b.models) for n, b in load(environ=values).backends.items()})
    assert all(value in shown for value in values.values())  # each of them has an effect


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_configuration_that_a_page_shows_can_be_used(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MERCURY_API_KEY", "TEAM_A_KEY", "AR_API_KEY"):
        monkeypatch.setenv(name, f"key-of-{name}")
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        tree = tomllib.loads(block)
        backends = tree.setdefault("backends", {})  # what an excerpt leaves out
        for name in ("mercury", "ar"):
            backends.setdefault(name, {})
        for backend in backends.values():
            backend.setdefault("url", "http://x")
        assert Settings(**tree).backends


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
