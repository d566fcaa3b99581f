"""The uplink over real gRPC: a controller that goes away and comes back, and what it may order."""

import asyncio
import random
from collections.abc import Callable

import pytest

from everstep_agent.backoff import Backoff
from everstep_proto.generated import fleet_pb2
from fakes.one_loop import run
from fakes.ports import reserved_port
from fakes.tiny_fleet import TinyFleet, serving
from integration.uplink_rig import Rig, running, stop_order


def test_a_controller_that_is_back_at_once_is_found_at_once_after_a_good_stream() -> None:
    async def scenario() -> None:
        fleet = TinyFleet()
        # Without a stream that was good the first wait would be of more than ten minutes.
        backoff = Backoff(random.Random(1), first_s=6000.0, cap_s=6000.0)
        with reserved_port() as port:
            rig = Rig(port, backoff=backoff, connect_timeout_s=2.0)
            async with running(rig):
                async with serving(fleet, port):
                    await fleet.until(lambda: fleet.hellos)
                    await asyncio.sleep(5.5)  # a stream is good after five seconds
                async with serving(fleet, port):
                    await fleet.until(lambda: rig.uplink.streams == 2)

    run(scenario())


def _check_order(order_id: str) -> fleet_pb2.ControllerMessage:
    order = fleet_pb2.Order(order_id=order_id, term=1, run_check=fleet_pb2.RunCheck())
    return fleet_pb2.ControllerMessage(order=order)


def _heard(fleet: TinyFleet, kind: str) -> Callable[[], object]:
    return lambda: [message for message in fleet.messages if message.HasField(kind)]  # type: ignore[arg-type]


def test_every_record_arrives_in_order_over_many_deaths_of_the_controller() -> None:
    async def scenario() -> None:
        fleet = TinyFleet()
        with reserved_port() as port:
            rig = Rig(port, connect_timeout_s=2.0)
            async with running(rig):
                for death in range(5):
                    async with serving(fleet, port):
                        for number in range(50):
                            rig.record(f"{death}-{number}")
                        await fleet.until(lambda: fleet.records)
                async with serving(fleet, port):
                    await fleet.until(lambda: len(fleet.records) == 250)
                    await fleet.until(lambda: rig.outbox.counts.waiting == 0)
        names = [fleet.records["outbox-1", n].check_finished.order_id for n in range(1, 251)]
        assert names == [f"{death}-{number}" for death in range(5) for number in range(50)]

    run(scenario())


def test_the_time_is_told_at_once_with_the_question() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.uplink.connected)
                request = fleet_pb2.TimeRequest(sent_ns=77)
                fleet.say(fleet_pb2.ControllerMessage(time_request=request))
                await fleet.until(_heard(fleet, "time_reply"))
                assert fleet.messages[0].time_reply.sent_ns == 77
                assert fleet.messages[0].time_reply.stamp.boot_ns > 0

    run(scenario())


def test_the_fleets_word_on_failed_prologs_comes_with_the_question_for_the_time() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.uplink.connected)
                assert rig.uplink.budget_answer is None
                request = fleet_pb2.TimeRequest(sent_ns=77, budget_exceeded="40 others are out")
                fleet.say(fleet_pb2.ControllerMessage(time_request=request))
                await fleet.until(_heard(fleet, "time_reply"))
                stamp = fleet.messages[0].time_reply.stamp
                assert rig.uplink.budget_answer == ("40 others are out", stamp.wall_ns)

    run(scenario())


def test_orders_of_a_lower_term_are_refused() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet(term=5)) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.done.connected)
                fleet.say(stop_order("old", term=4))
                old = fleet_pb2.VaultDirective(job="old", term=4)
                fleet.say(fleet_pb2.ControllerMessage(vault=old))
                fleet.say(stop_order("new", term=5))
                await fleet.until(lambda: rig.done.orders)
                assert rig.done.orders == ["new"]
                assert rig.done.directives == []
                assert rig.terms.refused == 2

    run(scenario())


def test_a_check_that_is_ordered_twice_runs_once_and_is_answered_twice() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.done.connected)
                fleet.say(_check_order("check-1"))
                await fleet.until(lambda: len(fleet.of("check_finished")) == 1)
                fleet.say(_check_order("check-1"))
                await fleet.until(lambda: len(fleet.of("check_finished")) == 2)
                assert rig.checks == 1

    run(scenario())


def test_what_the_user_of_a_job_is_told_is_passed_on() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.done.connected)
                told = fleet_pb2.TellLauncher(job="train", job_id="train-1", text="it stands still")
                fleet.say(fleet_pb2.ControllerMessage(tell_launcher=told))
                await fleet.until(lambda: rig.done.told)
                assert rig.done.told == ["it stands still"]

    run(scenario())


def test_peers_and_questions_about_them_are_passed_on() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.done.connected)
                peer = fleet_pb2.WatchedPeer(node="node-2", liveness_address="127.0.0.1:9")
                fleet.say(fleet_pb2.ControllerMessage(peers=fleet_pb2.PeerList(peers=[peer])))
                question = fleet_pb2.ConfirmPeer(confirm_id="c", peer=peer)
                fleet.say(fleet_pb2.ControllerMessage(confirm=question))
                await fleet.until(lambda: rig.done.asked)
                assert rig.done.peers == ["node-2"]

    run(scenario())


def test_a_controller_that_falls_silent_is_connected_to_anew() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port, silence_s=0.2)
            async with running(rig):
                await fleet.until(lambda: rig.uplink.streams >= 3)

    run(scenario())


def test_whoever_waits_for_the_controllers_word_hears_when_its_stream_ends() -> None:
    async def scenario() -> None:
        fleet = TinyFleet()
        async with serving(fleet) as served:
            rig = Rig(served.port)
            connected = rig.done.away
            async with running(rig):
                await served.until(lambda: rig.uplink.connected)
                assert connected == []
                rig.uplink.renew()
                await served.until(lambda: rig.uplink.streams >= 2)
                assert connected == [False]
                await served.until(lambda: rig.uplink.connected)
        # The agent has ended: nobody is left to look again.
        assert connected == [False]

    run(scenario())


def test_a_renewed_stream_says_hello_again() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: rig.uplink.connected)
                rig.uplink.renew()
                await fleet.until(lambda: len(fleet.hellos) >= 2)

    run(scenario())


def test_a_controller_that_halts_is_away_until_a_stream_on_which_it_acts() -> None:
    async def scenario() -> None:
        fleet = TinyFleet()
        async with serving(fleet):
            rig = Rig(fleet.port)
            away = rig.done.away
            async with running(rig):
                await fleet.until(lambda: rig.uplink.connected)
                assert rig.uplink.away_s() == 0
                fleet.halt("this journal is old")
                await fleet.until(lambda: rig.uplink.away_s() > 0.1)
                assert (rig.uplink.connected, away, rig.done.halts) == (True, [True], 1)
                # It still is on the next stream, where the absence goes on.
                fleet.halted = "rebuilding"
                rig.uplink.renew_if_halted()
                await fleet.until(lambda: rig.uplink.halted == "rebuilding")
                assert rig.uplink.away_s() > 0.1
                fleet.halted = ""
                rig.uplink.renew()
                await fleet.until(lambda: len(fleet.hellos) == 3 and rig.uplink.connected)
                assert (rig.uplink.away_s(), away) == (0, [True])
                # Nobody has to hear more of one who hears the records.
                rig.uplink.renew_if_halted()
                rig.record("one")
                await fleet.until(lambda: fleet.records)
                assert len(fleet.hellos) == 3

    run(scenario())


def test_the_newest_vault_report_of_a_job_is_sent_and_samples_do_not_pile_up() -> None:
    async def scenario() -> None:
        fleet = TinyFleet()
        # A port that no server ever had: a dying one may still take a stream.
        with reserved_port() as port:
            rig = Rig(port)
            for generation in range(5):
                report = fleet_pb2.VaultReport(job="j", settled_generation=generation)
                rig.uplink.vault_report(report)
                rig.uplink.samples(fleet_pb2.SampleBatch(schema=generation))
            async with running(rig), serving(fleet, port):
                await fleet.until(_heard(fleet, "samples"))
                assert [message.WhichOneof("body") for message in fleet.messages] == [
                    "vault",
                    "samples",
                ]
                assert fleet.messages[0].vault.settled_generation == 4
                assert fleet.messages[1].samples.schema == 4

    run(scenario())


def test_kernel_messages_are_sent_after_a_change_and_at_every_connect() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            line = fleet_pb2.KernelMessage(text="words")
            rig.uplink.kernel_messages(fleet_pb2.KernelMessages(lines=[line]))
            async with running(rig):
                await fleet.until(lambda: len(fleet.messages) >= 1)
                rig.uplink.renew()
                await fleet.until(lambda: len(fleet.messages) >= 2)
                rig.uplink.kernel_messages(fleet_pb2.KernelMessages(lines=[line, line]))
                await fleet.until(lambda: len(fleet.messages) >= 3)
            assert [len(message.kernel.lines) for message in fleet.messages] == [1, 1, 2]

    run(scenario())


def test_a_controller_that_has_less_than_it_acknowledged_has_forgotten() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            rig = Rig(fleet.port)
            async with running(rig):
                rig.record("one")
                await fleet.until(lambda: fleet.records and not rig.outbox.counts.waiting)
                fleet.records.clear()
                for streams in (2, 3):
                    rig.uplink.renew()
                    await fleet.until(lambda n=streams: len(rig.done.forgotten) == n)  # type: ignore[misc]
            # It is told once: what was said again is in the outbox like everything else.
            assert rig.done.forgotten == [False, True, False]

    run(scenario())


def test_orders_that_cannot_be_used_end_no_stream_and_the_controller_is_told_of_each_kind() -> None:
    stop = fleet_pb2.StopGeneration(job="a job", generation=1)
    huge = fleet_pb2.StartGeneration(job="j", processes=2**31)
    message, order = fleet_pb2.ControllerMessage, fleet_pb2.Order
    unusable = (
        message(order=order(order_id="bad", term=1, stop_generation=stop)),
        message(order=order(order_id="huge", term=1, start_generation=huge)),
        message(order=order(order_id="of tomorrow", term=1)),
        message(order=order(order_id="term", term=2**63, run_check=fleet_pb2.RunCheck())),
        message(vault=fleet_pb2.VaultDirective(job="j", term=1, dead_steps=[2**63])),
        message(spare_memory=fleet_pb2.SpareMemory(job="../j", term=1)),
        message(peers=fleet_pb2.PeerList(peers=[fleet_pb2.WatchedPeer(node="")])),
        message(confirm=fleet_pb2.ConfirmPeer(confirm_id="")),
        message(ping=fleet_pb2.Ping()),
        message(),
    )

    async def scenario() -> None:
        fleet = TinyFleet()
        async with serving(fleet):
            rig = Rig(fleet.port)
            async with running(rig):
                await fleet.until(lambda: fleet.hellos)
                for one in (*unusable, *unusable):
                    fleet.say(one)
                fleet.say(stop_order("good", 1))
                await fleet.until(lambda: len(fleet.of("order_rejected")) == 9)
                await fleet.until(lambda: rig.done.orders)
            assert rig.uplink.streams == 1
            assert rig.done.orders == ["good"]
            assert rig.terms.highest == 1
            told = [record.order_rejected for record in fleet.of("order_rejected")]
            assert {one.kind: one.order_id for one in told} == {
                "stop_generation": "bad",
                "start_generation": "huge",
                "order": "of tomorrow",
                "run_check": "term",
                **dict.fromkeys(("vault", "spare_memory", "peers", "confirm", "unknown"), ""),
            }
            assert {one.count for one in told} == {1}
            assert all(one.error for one in told)

    run(scenario())


def test_an_order_that_cannot_be_used_is_left_out_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(1)
    stop = fleet_pb2.StopGeneration(job="a job", generation=1)
    for order in (
        fleet_pb2.Order(order_id="bad", term=1, stop_generation=stop),
        fleet_pb2.Order(order_id="newer", term=1),
    ):
        rig.orders.on_message(fleet_pb2.ControllerMessage(order=order))
    rig.orders.on_message(stop_order("good", 1))
    assert rig.done.orders == ["good"]
    assert "StopGeneration.job: --job 'a job': expected a name of" in caplog.text
    assert "it has no body that this version of the agent knows" in caplog.text
