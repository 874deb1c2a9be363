"""The configuration: what is accepted, what is refused and in which words, and where secrets do not show."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.gateway import timeouts
from proxy.settings import ConfigError, Settings, address, is_loopback, load

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no file of this machine counts."""
    import os

    for name in list(os.environ):
        if name.startswith(("MANOMETER_", "MERCURY_", "AR_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def read(text: str, path: Path = Path("m.toml")) -> Settings:
    path.write_text(text, encoding="utf-8")
    return load(path)


def refused(text: str) -> str:
    """The one line that says why."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    said = str(caught.value)
    assert len(said.splitlines()) == 1, said
    assert said.startswith("m.toml: ")
    return said.removeprefix("m.toml: ")


ONE = '[backends.ar]\nurl = "http://x/v1"\n'


# -- without a file --------------------------------------------------------------------------------


def test_the_tutorials_variables_are_enough() -> None:
    found = load(environ={"MERCURY_API_KEY": KEY})
    assert list(found.backends) == ["mercury"]
    mercury = found.backends["mercury"]
    assert (mercury.url, mercury.secret, mercury.kind) == ("https://api.inceptionlabs.ai/v1", KEY, "diffusion")
    assert (mercury.dialect, mercury.models) == ("mercury", ("*",))
    assert (found.listen.address, found.listen.admin) == ("127.0.0.1:8080", "127.0.0.1:9464")


def test_both_sides_by_variables() -> None:
    found = load(
        environ={
            "MERCURY_API_KEY": KEY,
            "MERCURY_BASE_URL": "http://m/v1",
            "MERCURY_MODEL": "mercury-x",
            "AR_BASE_URL": "http://ar:8000",
            "AR_API_KEY": "sk-ar",
            "AR_MODEL": "llama",
        }
    )
    mercury, ar = found.backends["mercury"], found.backends["ar"]
    assert (mercury.url, mercury.models) == ("http://m/v1", ("mercury-x",))
    assert (ar.url, ar.models, ar.secret, ar.kind) == ("http://ar:8000", ("llama",), "sk-ar", "autoregressive")


def test_of_two_sides_without_model_names_one_takes_the_rest() -> None:
    found = load(environ={"MERCURY_API_KEY": KEY, "AR_BASE_URL": "http://ar/v1"})
    assert found.backends["mercury"].models == ("mercury-2.5",)
    assert found.backends["ar"].models == ("*",)
    assert found.backends["ar"].passthrough


@pytest.mark.parametrize(
    "environ, said",
    [
        ({}, "Set MERCURY_API_KEY"),
        ({"AR_API_KEY": KEY}, "AR_BASE_URL: is not set"),
        ({"MERCURY_API_KEY": ""}, "Set MERCURY_API_KEY"),
        ({"MERCURY_API_KEY": KEY, "MERCURY_BASE_URL": "api.x"}, "backends.mercury: url: not an http://"),
    ],
)
def test_what_is_missing_is_said(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert KEY not in str(caught.value)


# -- with one --------------------------------------------------------------------------------------


def test_a_file_is_found_by_argument_by_variable_and_by_its_name() -> None:
    assert list(read(ONE).backends) == ["ar"]
    Path("other.toml").write_text(ONE.replace("ar", "b"), encoding="utf-8")
    assert list(load(environ={"MANOMETER_CONFIG": "other.toml"}).backends) == ["b"]
    assert list(load(Path("m.toml"), {"MANOMETER_CONFIG": "other.toml"}).backends) == ["ar"]
    Path("manometer.toml").write_text(ONE.replace("ar", "c"), encoding="utf-8")
    assert list(load(environ={"MERCURY_API_KEY": KEY}).backends) == ["c"]


def test_the_whole_sketch_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERCURY_API_KEY", KEY)
    monkeypatch.setenv("TEAM_A_KEY", "team-a-secret")
    found = read(
        """
        [listen]
        address = "0.0.0.0:8080"
        admin   = "127.0.0.1:9464"
        workers = 2

        [backends.mercury]
        url      = "https://api.inceptionlabs.ai/v1"
        key      = "env:MERCURY_API_KEY"
        decoding = "diffusion"
        dialect  = "mercury"
        models   = ["mercury-2.5"]
        usage    = "inject"
        timeouts = { connect = 5, first_output = 120, idle = 0, total = 600 }
        fields   = { steps = "num_denoising_steps", width = "parallel_tokens" }
        instance_per_hour = "0"

        [[backends.mercury.prices]]
        model = "mercury-2.5"
        from = "2026-09-08"
        input = "0.20"
        cached_input = "0.02"
        output = "0.75"

        [backends.ar]
        url = "http://127.0.0.1:8001"
        models = ["*"]

        [routes.assistant]
        split    = { mercury = 0.9, ar = 0.1 }
        sticky   = "user"
        mirror   = { to = "ar", share = 0.05 }
        fallback = ["ar"]
        diffusion = { steps = 8, effort = "instant" }

        [clients]
        team-a = "env:TEAM_A_KEY"
        """
    )
    mercury = found.backends["mercury"]
    assert mercury.secret == KEY
    assert found.clients["team-a"].get_secret_value() == "team-a-secret"
    assert timeouts(mercury.timeouts).idle is None  # 0: none
    assert timeouts(mercury.timeouts).connect == 5.0
    price = mercury.book.at("mercury-2.5", datetime(2026, 9, 8, tzinfo=UTC).timestamp())
    assert price is not None
    assert (price.input, price.cached_input, price.output) == (Decimal("0.20"), Decimal("0.02"), Decimal("0.75"))
    assert mercury.book.at("mercury-2.5", datetime(2026, 9, 7, 23, 59, tzinfo=UTC).timestamp()) is None
    assert found.routes["assistant"].mirror is not None
    assert pickle.loads(pickle.dumps(found)) == found  # how forwarders get it


@pytest.mark.parametrize(
    "start, moment",
    [
        ("2026-09-08", datetime(2026, 9, 8, tzinfo=UTC)),
        ('"2026-09-08"', datetime(2026, 9, 8, tzinfo=UTC)),
        ('"2026-09-08T12:30:00Z"', datetime(2026, 9, 8, 12, 30, tzinfo=UTC)),
        ("2026-09-08T12:30:00", datetime(2026, 9, 8, 12, 30, tzinfo=UTC)),
        ("2026-09-08T12:30:00+02:00", datetime(2026, 9, 8, 10, 30, tzinfo=UTC)),
    ],
)
def test_a_price_starts_at_midnight_utc_or_when_it_says(start: str, moment: datetime) -> None:
    found = read(ONE + f'prices = [{{ model = "m", from = {start}, input = 1, output = 2.5 }}]')
    book = found.backends["ar"].book
    assert book.at("m", moment.timestamp() - 1) is None
    price = book.at("m", moment.timestamp())
    assert price is not None
    assert (price.input, price.output) == (Decimal(1), Decimal("2.5"))


def test_the_environment_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANOMETER_LISTEN__ADDRESS", "127.0.0.1:9999")
    monkeypatch.setenv("MANOMETER_LISTEN__WORKERS", "3")
    monkeypatch.setenv("MANOMETER_BACKENDS__AR__URL", "http://elsewhere/v1")
    monkeypatch.setenv("MANOMETER_BACKENDS__AR__MODELS", '["a", "b"]')
    monkeypatch.setenv("MANOMETER_BACKENDS__AR__TIMEOUTS__IDLE", "7")
    monkeypatch.setenv("MANOMETER_CLIENTS__TEAM", "env:THE_KEY")
    monkeypatch.setenv("THE_KEY", KEY)
    found = read('[listen]\nadmin = "127.0.0.1:1"\n' + ONE + 'models = ["c"]\nkey = "k"\ntimeouts = { total = 9 }')
    assert (found.listen.address, found.listen.admin, found.listen.workers) == ("127.0.0.1:9999", "127.0.0.1:1", 3)
    ar = found.backends["ar"]
    assert (ar.url, ar.models, ar.timeouts.idle, ar.timeouts.total) == ("http://elsewhere/v1", ("a", "b"), 7.0, 9.0)
    assert found.clients["team"].get_secret_value() == KEY


@pytest.mark.parametrize(
    "name, value, field",
    [
        ("MANOMETER_LISTEN__WORKERS", "many", "listen.workers"),
        ("MANOMETER_LISTEN__ADRESS", "127.0.0.1:1", "listen.adress"),
        ("MANOMETER_BACKENDS", "{bad", "backends"),
        ("MANOMETER_ROUTES", "[]", "routes"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, field: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        read(ONE)
    assert field in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# -- refusals: one line that names the field -------------------------------------------------------

REFUSED: dict[str, tuple[str, str]] = {
    "an unknown key": (ONE + "colour = 1", "backends.ar.colour: is not a setting"),
    "an unknown section": ("[metrics]\n" + ONE, "metrics: is not a setting"),
    "an unknown key below": (ONE + "timeouts = { first_token = 1 }", "backends.ar.timeouts.first_token: is not a"),
    "no url": ('[backends.ar]\nmodels = ["a"]', "backends.ar.url: is missing"),
    "a bad url": ('[backends.ar]\nurl = "x:1"', "backends.ar: url: not an http://"),
    "a bad port": ('[backends.ar]\nurl = "http://x:99999"', "backends.ar: url: not an http://"),
    "a bad outbound proxy": (ONE + 'proxy = "socks5://x:1"', "backends.ar: proxy: "),
    "a missing authority": (
        '[backends.ar]\nurl = "https://x"\nca_file = "none.pem"',
        "backends.ar: ca_file: none.pem cannot be used: No such file",
    ),
    "a price without a model": (ONE + "prices = [{ input = 1, output = 2 }]", "backends.ar.prices.0.model: is missing"),
    "a price without an output": (ONE + 'prices = [{ model = "m", input = 1 }]', "backends.ar.prices.0.output: is"),
    "a negative price": (ONE + 'prices = [{ model = "m", input = -1, output = 2 }]', "backends.ar.prices.0.input: "),
    "a price that is no number": (
        ONE + 'prices = [{ model = "m", input = "cheap", output = 2 }]',
        "backends.ar.prices.0.input: ",
    ),
    "a price from no day": (
        ONE + 'prices = [{ model = "m", from = "soon", input = 1, output = 2 }]',
        "backends.ar.prices.0.from: ",
    ),
    "a currency": (
        ONE + 'prices = [{ model = "m", input = 1, output = 2, currency = "euro" }]',
        "backends.ar.prices.0.currency: ",
    ),
    "a kind of decoding": (ONE + 'decoding = "quantum"', "backends.ar.decoding: "),
    "an unknown dialect": (ONE + 'dialect = "klingon"', "backends.ar.dialect: "),
    "a negative timeout": (ONE + "timeouts = { idle = -1 }", "backends.ar.timeouts.idle: "),
    "an endless timeout": (ONE + "timeouts = { idle = inf }", "backends.ar.timeouts.idle: "),
    "no workers": ("[listen]\nworkers = 0\n" + ONE, "listen.workers: "),
    "an address without a port": ('[listen]\naddress = "127.0.0.1"\n' + ONE, "listen: address: write HOST:PORT"),
    "an admin address": ('[listen]\nadmin = "x:y"\n' + ONE, "listen: admin: write HOST:PORT"),
    "an odd digit": ('[listen]\nadmin = "x:\u00b2"\n' + ONE, "listen: admin: write HOST:PORT"),
    "an endless drain": ("[listen]\ndrain = inf\n" + ONE, "listen.drain: "),
    "two that take everything": (
        '[backends.a]\nurl = "http://x"\nmodels = ["*"]\n[backends.b]\nurl = "http://x"\nmodels = ["*"]',
        'backends: only one may take every model ("*"), not a and b',
    ),
    "no backends": ("[listen]\nworkers = 1", "backends: none is configured"),
    "a split to nowhere": (ONE + "[routes.r]\nsplit = { br = 1.0 }", "routes.r.split: no backend is called 'br'"),
    "a split that is no share": (ONE + "[routes.r]\nsplit = { ar = 1.5 }", "routes.r.split.ar: "),
    "a split that is not whole": (ONE + "[routes.r]\nsplit = { ar = 0.5 }", "routes.r: split: the shares must add up"),
    "an empty split": (ONE + "[routes.r]\nsplit = {}", "routes.r.split: "),
    "a fallback to nowhere": (
        ONE + '[routes.r]\nsplit = { ar = 1 }\nfallback = ["x"]',
        "routes.r.fallback: no backend",
    ),
    "a mirror to nowhere": (ONE + '[routes.r]\nsplit = { ar = 1 }\nmirror = { to = "x" }', "routes.r.mirror.to: no"),
    "a stickiness": (ONE + '[routes.r]\nsplit = { ar = 1 }\nsticky = "luck"', "routes.r.sticky: "),
    "a key that is not set": (ONE + 'key = "env:NOT_SET"', "backends.ar.key: the environment variable NOT_SET is not"),
    "a client key that is not set": (ONE + '[clients]\nme = "env:NOT_SET"', "clients.me: the environment variable"),
    "an empty client key": (ONE + '[clients]\nme = ""', "clients.me: "),
    "two clients with one key": (ONE + 'key = "k"\n[clients]\na = "same"\nb = "same"', "clients.b: "),
    "an open proxy with a key": (
        '[listen]\naddress = "0.0.0.0:8080"\n' + ONE + f'key = "{KEY}"',
        "listen.address: 0.0.0.0:8080 can be reached by others",
    ),
    "clients' keys sent on": (
        ONE + '[clients]\nme = "k"\n[backends.b]\nurl = "http://x"\nkey = "passthrough"',
        "backends.b.key: ",
    ),
    "a backend's name with a slash": ('[backends."a/b"]\nurl = "http://x"', "backends.'a/b': a backend's name is"),
    "a backend's name with a line break": ('[backends."a\\nb"]\nurl = "http://x"', "backends.'a\\nb': "),
    "no TOML": ("[backends", "is no TOML"),
}


@pytest.mark.parametrize("text, said", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_refused_in_one_line_that_names_the_field(text: str, said: str) -> None:
    assert said in refused(text)


def test_several_faults_are_several_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        read(ONE + "colour = 1\nsize = 2")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "backends.ar.colour",
        "backends.ar.size",
    ]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^no\.toml: cannot be read: No such file or directory$"):
        load(Path("no.toml"))
    with pytest.raises(ConfigError, match=r"^\.: cannot be read: Is a directory$"):
        load(Path())


@pytest.mark.parametrize("more", ["", "allow_anonymous = true\n"])
def test_an_open_address_needs_clients_or_a_word(more: str) -> None:
    text = more + '[listen]\naddress = "0.0.0.0:8080"\n' + ONE + 'key = "k"\n'
    if more:
        assert read(text).allow_anonymous
    else:
        assert "allow_anonymous" in refused(text)
        assert read(text + '[clients]\nme = "k2"').clients
        assert read(text.replace('key = "k"\n', "")).backends  # no key, nothing to spend


# -- secrets ---------------------------------------------------------------------------------------


def test_no_secret_shows_in_any_form_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", KEY)
    found = read(ONE + f'key = "env:K"\n[clients]\nme = "{KEY}-client"')
    for text in (repr(found), str(found), str(found.model_dump()), found.model_dump_json(), repr(found.backends)):
        assert KEY not in text


@pytest.mark.parametrize(
    "text", [ONE + f'key = "{KEY}"\ncolour = 1', ONE + f'key = ["{KEY}"]', f'clients = "{KEY}"\n{ONE}']
)
def test_no_secret_shows_in_a_refusal(text: str) -> None:
    assert KEY not in refused(text)


def test_a_line_break_at_the_end_of_a_key_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", KEY + "\n")
    assert read(ONE + 'key = "env:K"').backends["ar"].secret == KEY
    assert load(environ={"MERCURY_API_KEY": KEY + "\r\n"}).backends["mercury"].secret == KEY


def test_a_key_that_cannot_stand_in_a_header_is_refused() -> None:
    said = refused(ONE + f'key = "{KEY}\\nx-other: 1"')
    assert "backends.ar.key: " in said
    assert KEY not in said


# -- small parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, wanted",
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:8080", ("::1", 8080)), ("localhost:0", ("localhost", 0))],
)
def test_addresses(text: str, wanted: tuple[str, int]) -> None:
    assert address(text) == wanted


@pytest.mark.parametrize(
    "host, wanted",
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, wanted: bool) -> None:
    assert is_loopback(host) is wanted


@pytest.mark.parametrize(
    "fields, kind",
    [
        ({}, "autoregressive"),
        ({"dialect": "mercury"}, "diffusion"),
        ({"dialect": "mercury", "decoding": "autoregressive"}, "autoregressive"),
        ({"decoding": "diffusion"}, "diffusion"),
    ],
)
def test_a_backend_decodes_as_it_says_or_as_its_dialect_suggests(fields: dict[str, Any], kind: str) -> None:
    assert Settings(backends={"b": {"url": "http://x"} | fields}).backends["b"].kind == kind
