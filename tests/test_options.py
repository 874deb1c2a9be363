from decimal import Decimal

import pytest
import typer
from typer.testing import CliRunner

from loadgen.options import Options, Refused, command, numbers


def test_diffusion_parameters_and_extra_fields_are_sent_as_they_are():
    options = Options(steps=8, width=64, effort="low", extra=["ignore_eos=true", "user=team-a", 'stop=["x"]'])
    assert options.fields == {
        "num_denoising_steps": 8,
        "parallel_tokens": 64,
        "reasoning_effort": "low",
        "ignore_eos": True,
        "user": "team-a",
        "stop": ["x"],
    }
    assert Options().fields == {}


def test_objectives_and_prices_are_read():
    options = Options(slo="ttft=0.5, e2e=3", price="input=0.2,output=0.75,cached=0.02", instance_price="2.5,4")
    assert options.slos == {"ttft": 0.5, "e2e": 3.0}
    (price,) = options.prices
    assert (price.input, price.output, price.cached_input) == (Decimal("0.2"), Decimal("0.75"), Decimal("0.02"))
    assert options.instances == (Decimal("2.5"), Decimal("4"))


def test_failures_are_allowed_by_number_or_by_share():
    assert Options(max_failures="3").failures_allowed(1000) == 3
    assert Options(max_failures="5%").failures_allowed(200) == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slo": "speed=1"}, "--slo: no metric 'speed'"),
        ({"slo": "ttft"}, "--slo: expected `name=number`"),
        ({"price": "input=1"}, "--price: give both"),
        ({"price": "input=1,output=x"}, "--price: 'x' is no number"),
        ({"price": "input=1,output=2,beer=3"}, "--price: beer is not"),
        ({"instance_price": "nan"}, "--instance-price: 'nan' must be a finite number"),
        ({"max_failures": "few"}, "--max-failures: expected a number"),
        ({"header": ["no colon"]}, "--header: expected `name: value`"),
        ({"header": ["a: b\r\nc: d"]}, "--header: expected"),
        ({"extra": ["x"]}, "--extra: expected `field=JSON`"),
        ({"processes": 0}, "--processes must be above 0"),
        ({"max_tokens": -1}, "--max-tokens must not be below 0"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_option(given, message):
    with pytest.raises(Refused, match=message):
        Options(**given).verify()


def test_neither_key_nor_header_values_are_told():
    told = str(Options(key="secret-1", header=["authorization: secret-2"]).told())
    assert "secret" not in told
    assert "given" in told and "authorization" in told


def test_a_backend_is_forced_by_a_header():
    assert Options(backend="ar").headers == ((b"x-manometer-backend", b"ar"),)


def test_a_command_has_the_shared_options_and_its_own_take_their_place():
    seen = {}

    @command
    def example(options: Options, steps: str = "", count: int = 3) -> int:
        """Does something."""
        seen.update(options=options, steps=steps, count=count)
        if count == 9:
            raise Refused("--count: not nine")
        return 4

    app = typer.Typer()
    app.command()(example)
    result = CliRunner().invoke(app, ["--url", "http://x", "--steps", "4,8", "--seed", "7"])
    assert result.exit_code == 4
    assert (seen["options"].url, seen["options"].seed, seen["steps"], seen["count"]) == ("http://x", 7, "4,8", 3)
    assert "Does something" in CliRunner().invoke(app, ["--help"]).stdout
    refused = CliRunner().invoke(app, ["--count", "9"])
    assert (refused.exit_code, refused.stderr) == (2, "manometer: --count: not nine\n")


def test_lists_of_numbers_keep_their_order_and_lose_repeats():
    assert numbers("--steps", "8, 4,8") == [8, 4]
    assert numbers("--steps", "") == []
    with pytest.raises(Refused, match="--steps: expected whole numbers"):
        numbers("--steps", "4,x")
    with pytest.raises(Refused, match="--steps: every number"):
        numbers("--steps", "0")
