"""An agent that is configured with several controllers, over real gRPC: which one serves it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess
from fakes.authority import Authority
from fakes.controllers import start_controller
from fakes.one_loop import run
from fakes.ports import reserved_port
from fakes.tiny_fleet import TinyFleet, serving
from fakes.waits import crowding
from integration.uplink_rig import Rig, running, stop_order

pytestmark = pytest.mark.timeout(120)


def _address(fleet: TinyFleet) -> str:
    return f"127.0.0.1:{fleet.port}"


def _names(fleet: TinyFleet) -> list[str]:
    numbers = sorted(number for _, number in fleet.records)
    return [fleet.records["outbox-1", number].check_finished.order_id for number in numbers]


def test_an_agent_goes_to_the_one_that_the_standby_names() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as active, serving(TinyFleet()) as standby:
            standby.active = _address(active)
            rig = Rig(standby.port, active.port)
            async with running(rig):
                for number in range(100):
                    rig.record(str(number))
                await active.until(lambda: active.records and not rig.outbox.counts.waiting)
                assert rig.uplink.address == _address(active)
                assert len(standby.hellos) == 1
            assert active.acknowledged == list(range(1, 101))
            assert not standby.records

    run(scenario())


def test_an_address_that_is_not_configured_is_told_of_once_and_never_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with (
            serving(TinyFleet()) as other,
            serving(TinyFleet()) as one,
            serving(TinyFleet()) as two,
        ):
            one.active = two.active = _address(other)
            rig = Rig(one.port, two.port)
            async with running(rig):
                await one.until(lambda: len(one.hellos) + len(two.hellos) >= 5)
            assert not other.hellos
            assert rig.uplink.trouble.count("this is a standby") == 2
            told = [line for line in caplog.messages if "as the active one" in line]
            assert len(told) == 2
            assert all(_address(other) in line and "add it there" in line for line in told)

    run(scenario())


def test_every_record_is_acknowledged_once_when_a_controller_hands_over() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet(term=5)) as one, serving(TinyFleet(term=6)) as two:
            two.records = one.records  # the journal
            two.acknowledged = one.acknowledged
            two.active = _address(one)
            rig = Rig(one.port, two.port)
            async with running(rig):
                for number in range(50):
                    rig.record(f"before {number}")
                await one.until(lambda: len(one.acknowledged) == 50)
                one.active, two.active = _address(two), None
                for number in range(50):
                    rig.record(f"after {number}")
                await two.until(lambda: rig.outbox.counts.waiting == 0)
                assert rig.uplink.address == _address(two)
                assert rig.terms.highest == 6
            assert two.acknowledged == list(range(1, 101))
            before, after = _names(two)[:50], _names(two)[50:]
            assert before == [f"before {number}" for number in range(50)]
            assert after == [f"after {number}" for number in range(50)]

    run(scenario())


def test_each_controller_proves_to_be_the_one_that_was_dialled(tmp_path: Path) -> None:
    signs = Authority(tmp_path)
    agent = signs.issue("node-1", "agent")
    by_address = signs.issue("two", "controller", host="127.0.0.1")
    by_name = signs.issue("one", "controller", host="localhost")

    def dialled(fleet: TinyFleet, host: str) -> LocalAccess:
        return LocalAccess(address=f"{host}:{fleet.port}", tls=agent)

    async def scenario() -> None:
        async with (
            serving(TinyFleet(), tls=by_name) as one,
            serving(TinyFleet(), tls=by_address) as two,
        ):
            # The first one has a certificate for another name than the one in the configuration.
            rig = Rig(dialled(one, "127.0.0.1"), dialled(two, "127.0.0.1"))
            async with running(rig):
                await two.until(lambda: rig.uplink.connected)
                assert (rig.uplink.address, one.hellos) == (_address(two), [])
            rig = Rig(dialled(one, "localhost"), dialled(two, "127.0.0.1"))
            async with running(rig):
                await one.until(lambda: rig.uplink.connected)
                assert rig.uplink.address == f"localhost:{one.port}"
                one.active = _address(two)
                rig.record("moved")
                await two.until(lambda: two.acknowledged)
            assert one.acknowledged == []

    run(scenario())


def test_a_controller_that_is_only_slow_keeps_its_stream_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as active, serving(TinyFleet()) as standby:
            standby.active, active.acking = _address(active), False
            rig = Rig(active.port, standby.port)
            async with running(rig):
                for number in range(20):
                    rig.record(str(number))
                # It is doubted, and another one is asked, while the stream stays.
                await standby.until(lambda: standby.hellos)
                assert (rig.uplink.streams, active.ended) == (1, 0)
                active.acking = True
                rig.record("20")
                await active.until(lambda: rig.outbox.counts.waiting == 0)
                assert (rig.uplink.streams, active.ended) == (1, 0)
                assert rig.uplink.address == _address(active)
            assert active.arrivals == list(range(1, 22))
            assert rig.done.away == []

    run(scenario())


def test_a_controller_that_acknowledges_nothing_is_left_for_its_successor_and_orders_nothing() -> (
    None
):
    async def scenario() -> None:
        async with serving(TinyFleet(term=5)) as old, serving(TinyFleet(term=6)) as new:
            rig = Rig(old.port, new.port)
            async with running(rig):
                rig.record("acknowledged")
                await old.until(lambda: old.acknowledged == [1])
                new.records = dict(old.records)
                old.acking = False
                rig.record("not acknowledged")
                await new.until(lambda: rig.outbox.counts.waiting == 0)
                assert rig.uplink.address == _address(new)
                # It has not heard yet that it is superseded.
                old.say(stop_order("of the old one", 5))
                new.say(stop_order("of its successor", 6))
                await new.until(lambda: rig.done.orders)
                assert rig.done.orders == ["of its successor"]
                await old.until(lambda: old.ended)
            assert (old.acknowledged, new.acknowledged) == ([1], [2])

    run(scenario())


def test_a_controller_that_wakes_with_a_lower_term_is_left_alone_and_orders_nothing() -> None:
    async def scenario() -> None:
        old, new = TinyFleet(term=5), TinyFleet(term=6)
        with reserved_port() as port:
            async with serving(old):
                rig = Rig(old.port, port)
                async with running(rig):
                    async with serving(new, port):
                        old.active = _address(new)
                        await new.until(lambda: rig.uplink.connected)
                        assert rig.terms.highest == 6
                        old.active = None  # as it had been before
                        rig.uplink.renew()
                        await new.until(lambda: rig.uplink.streams == 2)
                        assert rig.uplink.address == _address(new)
                    # Now there is no other: it is connected to, so that it hears of the higher
                    # term; what it orders is not done, on whatever stream.
                    await old.until(lambda: rig.uplink.address == _address(old))
                    assert old.hellos[-1].highest_term == 6
                    old.say(stop_order("of the old one", 5))
                    await old.until(lambda: rig.terms.refused > 1)
                    assert rig.done.orders == []
                    # And it is left as soon as there is one.
                    async with serving(new, port):
                        await new.until(lambda: rig.uplink.address == _address(new))

    run(scenario())


def test_every_record_is_acknowledged_once_when_a_real_controller_is_stopped(
    tmp_path: Path,
) -> None:
    """Its kernel still takes connections and data, and its process says nothing."""

    async def scenario() -> None:
        with await asyncio.to_thread(start_controller, tmp_path) as real:
            async with serving(TinyFleet(term=1000)) as standby:
                standby.active = f"127.0.0.1:{real.port}"
                rig = Rig(real.port, standby.port)
                async with running(rig):
                    for number in range(30):
                        rig.record(f"before {number}")
                    await standby.until(
                        lambda: rig.uplink.streams and not rig.outbox.counts.waiting
                    )
                    assert not standby.hellos
                    os.kill(real.process.pid, signal.SIGSTOP)
                    began_s = asyncio.get_running_loop().time()
                    # It has the journal of the other one by then. That one had a check made, too.
                    journaled = rig.outbox.counts.recorded
                    standby.records = {
                        ("outbox-1", number + 1): fleet_pb2.Record() for number in range(journaled)
                    }
                    for number in range(30):
                        rig.record(f"after {number}")
                    # It is asked before it takes over, and the records wait.
                    await standby.until(lambda: standby.hellos)
                    assert rig.outbox.counts.waiting == 30
                    standby.active = None
                    await standby.until(lambda: not rig.outbox.counts.waiting)
                    assert asyncio.get_running_loop().time() - began_s < 20.0 * crowding()
                    assert rig.uplink.address == _address(standby)
                    os.kill(real.process.pid, signal.SIGCONT)
                    rig.record("last")
                    await standby.until(lambda: not rig.outbox.counts.waiting)
                    assert rig.uplink.address == _address(standby)
                assert standby.acknowledged == list(range(journaled + 1, journaled + 32))

    run(scenario())


def test_an_idle_agent_leaves_a_stopped_controller_by_the_transports_pings(tmp_path: Path) -> None:
    async def scenario() -> None:
        with await asyncio.to_thread(start_controller, tmp_path) as real:
            async with serving(TinyFleet(term=1000)) as standby:
                standby.active = f"127.0.0.1:{real.port}"
                rig = Rig(real.port, standby.port)
                async with running(rig):
                    await standby.until(lambda: rig.uplink.connected)
                    # The controller bears a ping every two seconds: the stream is the first one.
                    await asyncio.sleep(9.0)
                    assert (rig.uplink.streams, standby.hellos) == (1, [])
                    os.kill(real.process.pid, signal.SIGSTOP)
                    standby.active = None
                    began_s = asyncio.get_running_loop().time()
                    await standby.until(lambda: rig.uplink.address == _address(standby))
                    assert asyncio.get_running_loop().time() - began_s < 12.0 * crowding()

    run(scenario())
