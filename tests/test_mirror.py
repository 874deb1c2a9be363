"""Shadow copies: measured, bounded, and never in the client's way."""

from decimal import Decimal

import pytest

from proxy.mirror import Sink
from proxy.settings import Settings
from tests.stage import HOST, Client, Peer, Stage, chat, events, piece, post, replies, whole

BODY = (
    b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1000,"completion_tokens":1000}}'
)
PRICE = {"input": "1", "output": "1"}


def mirrored(main: Stage, shadow: Stage | str, **mirror: object) -> Settings:
    """Route `r`: all to `main`, all copied to `shadow`."""
    url = shadow if isinstance(shadow, str) else shadow.url
    return Settings(
        listen={"drain": 0.3},
        backends={
            "main": {"url": main.url, "models": ["m"]},
            "shadow": {"url": url, "models": ["s"], "prices": [{"model": "s"} | PRICE]},
        },
        routes={"r": {"split": {"main": 1.0}, "mirror": {"to": "shadow", "share": 1.0} | mirror}},
    )


async def ask(port: int, **more: object) -> int:
    async with Client(port) as client:
        client.send(post(chat(model="r", **more)))
        return (await client.answer()).status


async def test_a_copy_goes_to_the_other_backend_under_its_name_for_the_model(stage, proxy) -> None:
    main, shadow = await stage(replies(whole(BODY))), await stage(replies(whole(BODY)))
    running = await proxy(mirrored(main, shadow))
    assert await ask(running.port) == 200
    await running.records.reading(1)
    by = {reading.backend: reading for reading in running.readings}
    assert (by["main"].mirror, by["shadow"].mirror) == (False, True)
    assert main.asked[0].json["model"] == "m" and shadow.asked[0].json["model"] == "s"
    assert by["shadow"].tokens.completion == 1000 and by["shadow"].route == "r"
    assert by["main"].id != by["shadow"].id


async def test_what_the_shadow_does_never_reaches_the_client(stage, proxy) -> None:
    async def hang(peer: Peer) -> None:
        await peer.request()
        await peer.gone.wait()

    async def cut(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    async def flood(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), *[piece(b"data: " + b"x" * 1000 + b"\n\n")] * 2000)
        await peer.gone.wait()

    for script in (hang, cut, flood):
        main, shadow = await stage(replies(whole(BODY))), await stage(script)
        running = await proxy(mirrored(main, shadow))
        assert [await ask(running.port) for _ in range(5)] == [200] * 5
        clients = [reading for reading in running.readings if not reading.mirror]
        assert [reading.outcome for reading in clients] == ["ok"] * 5
    unreachable = await proxy(mirrored(main, f"http://{HOST}:1/v1"))
    assert await ask(unreachable.port) == 200


async def test_copies_are_bounded_in_number_and_what_is_over_is_left_out(stage, proxy) -> None:
    async def hang(peer: Peer) -> None:
        await peer.request()
        await peer.gone.wait()

    main, shadow = await stage(replies(whole(BODY))), await stage(hang)
    running = await proxy(mirrored(main, shadow, max_in_flight=3))
    assert [await ask(running.port) for _ in range(10)] == [200] * 10
    copies = [opening for opening in running.records.openings if opening.mirror]
    assert len(copies) == 3


async def test_copies_are_bounded_in_cost(stage, proxy) -> None:
    main, shadow = await stage(replies(whole(BODY))), await stage(replies(whole(BODY)))
    running = await proxy(mirrored(main, shadow, max_cost_per_hour=Decimal("0.005")))
    for number in range(3):  # each costs 0.002; the third passes the bound, and is the last
        await ask(running.port)
        await running.records.reading(2 * number + 1)
    for _ in range(3):
        await ask(running.port)
    assert sum(reading.mirror for reading in running.readings) == 3


async def test_a_copy_that_its_backend_would_not_take_is_refused_and_the_client_served(stage, proxy) -> None:
    main, shadow = await stage(replies(whole(BODY))), await stage(replies(whole(BODY)))
    backends = {
        "main": {"url": main.url, "models": ["m"], "dialect": "dlmserve"},
        "shadow": {"url": shadow.url, "models": ["s"], "unsupported": "reject"},
    }
    routes = {"r": {"split": {"main": 1.0}, "mirror": {"to": "shadow", "share": 1.0}}}
    running = await proxy(Settings(backends=backends, routes=routes, listen={"drain": 0.3}))
    assert await ask(running.port, diffusion={"steps": 8}) == 200
    await running.records.reading(1)
    assert {r.backend: r.outcome for r in running.readings} == {"main": "ok", "shadow": "refused"}
    assert shadow.asked == []


def test_copies_are_read_no_faster_than_models_write() -> None:
    now = 0.0
    sink = Sink(lambda: now)
    sink.write(b"x" * (512 << 10))  # may come at once
    assert not sink.choked
    sink.write(b"x" * (2 << 20))
    assert sink.choked and sink.pause == pytest.approx(1.0)
    now = 1.0
    sink.write(b"")
    assert not sink.choked
    now = 100.0  # what was not used is not saved up
    sink.write(b"x" * (512 << 10))
    assert not sink.choked
    sink.write(b"x")
    assert sink.choked
