"""A node that comes with another name is the node that it was; a copy of its image is not."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import Accelerator, Interface, Inventory, JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes import machines
from everstep_controller.core.nodes.stream_flaps import ENDS
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_interrupted_end import from_every_prefix
from unit.core.recovery.test_deadlines import Agents
from unit.core.test_decisions import S, Story


def _gpu(uuid: str) -> Accelerator:
    return Accelerator(
        uuid=uuid, name="H200", vendor="nvidia", pci_address="", memory_bytes=1, driver="1"
    )


def _port(address: str, kind: str = "ethernet") -> Interface:
    return Interface(name="eth0", kind=kind, up=True, speed_bits_per_s=0, address=address)


GPUS = Inventory(accelerators=(_gpu("GPU-a"), _gpu("GPU-b")))
OTHER_GPUS = Inventory(accelerators=(_gpu("GPU-c"), _gpu("GPU-d")))
PORTS = Inventory(interfaces=(_port("aa:01"), _port("00:00:00:00:00:00", "bond")))


class Fleet(Story):
    """Nodes n0 to n5, and agents that come with names, machines and hardware of the tests."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.journal: list[tuple[events.Event, int]] = []
        super().__init__(6, settings)

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        done = super().tell(event, after_s)
        self.journal.append((event, self.now_ns))
        return done

    def hello(
        self,
        node: str,
        *,
        machine: str = "m-x",
        box: str = "box",
        boot: str = "1",
        hardware: Inventory = GPUS,
        jobs: tuple[JobOnNode, ...] = (),
    ) -> list[actions.Action]:
        """Have an agent connect, and its check pass."""
        hello = events.NodeConnected(
            node=node,
            boot_id=boot,
            agent_version="0.1.0",
            outbox=box,
            highest_term=self.terms.get(box, 0),
            host=node,
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
            machine=machine,
            inventory=hardware,
            jobs=jobs,
        )
        done = self.tell(hello)
        self.terms[box] = self.core.state.term
        for action in list(done):
            if isinstance(action, actions.RunCheck):
                passed = reports.CheckFinished(action.id, True, "fine")
                done += self.tell(events.Reported(self.origin(node), 0, passed))
        return done

    def leave(self, node: str) -> None:
        """Have an agent end, as it is told to."""
        self.tell(events.AgentLeaving(node, "told to stop"))
        self.tell(events.NodeDisconnected(node))

    def forget(self, node: str) -> None:
        """Let the time come at which an old name is forgotten."""
        self.tell(events.TimerDue(f"renamed/{node}"), after_s=70)

    @property
    def names(self) -> list[str]:
        return sorted(self.core.state.nodes)


def _isolated() -> Fleet:
    story = Fleet()
    story.hello("old")
    story.tell(events.OperatorIsolated("old", "ann", "swap the fan"))
    story.leave("old")
    return story


def test_a_node_with_another_name_is_the_same_node_and_the_old_name_is_gone() -> None:
    story = _isolated()
    done = story.hello("new", boot="2")
    said = {one.subject: one.message for one in done if isinstance(one, actions.Announce)}
    assert "old is new now" in said["new"]
    story.forget("old")
    assert story.names == ["n0", "n1", "n2", "n3", "n4", "n5", "new"]
    assert story.core.state.index.expected.total == 7
    assert list(story.core.state.index.machines) == [("m-x", ["new"])]


def test_isolation_is_not_escaped_by_another_name() -> None:
    story = _isolated()
    story.hello("new", boot="2")
    assert story.owners("new") == ["operator"]
    assert "swap the fan" in story.core.state.nodes["new"].isolation.claims[0].reason


@pytest.mark.parametrize("hardware", [GPUS, PORTS])
def test_nor_by_another_data_folder_and_another_name_at_once(hardware: Inventory) -> None:
    story = Fleet()
    story.hello("old", hardware=hardware)
    story.tell(events.OperatorIsolated("old", "ann", "swap the fan"))
    story.leave("old")
    story.hello("new", boot="2", box="another", hardware=hardware)
    assert story.owners("new") == ["operator"]


def test_nor_by_the_name_of_a_node_that_is_gone() -> None:
    story = Fleet()
    story.hello("dead", machine="m-y", box="dead-box", hardware=OTHER_GPUS)
    story.tell(events.OperatorDrained("dead", "bob", "sold soon"))
    story.lose("dead")
    story.hello("old")
    story.tell(events.OperatorIsolated("old", "ann", "swap the fan"))
    story.leave("old")
    story.hello("dead", boot="2")
    claims = {claim.reason for claim in story.core.state.nodes["dead"].isolation.claims}
    assert "ann: swap the fan" in claims
    story.forget("old")
    assert "old" not in story.names


def test_nor_after_the_node_was_lost_for_days() -> None:
    story = Fleet()
    story.hello("old")
    story.tell(events.OperatorIsolated("old", "ann", "swap the fan"))
    story.lose("old")
    assert story.state("old") is NodeState.LOST
    story.now_ns += 5 * 86_400 * S
    story.hello("new", boot="2")
    assert story.owners("new") == ["operator"]


def test_automations_claim_and_the_finding_of_the_core_go_along() -> None:
    story = Fleet(Settings(mode=Mode.ENFORCE))
    story.hello("old")
    for _ in range(ENDS):
        story.hello("old")
    assert story.core.state.index.flapping == ["old"]
    story.find("old")
    assert story.owners("old") == ["automation"]
    assert story.core.state.index.isolated == ["old"]
    story.leave("old")
    story.hello("new")
    state = story.core.state
    assert (state.index.flapping, state.index.isolated, state.index.draining) == (
        ["new"],
        ["new"],
        [],
    )
    assert story.owners("new") == ["automation"]
    assert "StreamFlapping" in {
        one.finding.condition for one in state.nodes["new"].health.findings.values()
    }
    assert story.state("new") is NodeState.REPAIRING


def test_deaths_and_hangs_that_are_remembered_are_of_the_new_name() -> None:
    story = Agents()
    story.run()
    job = story.core.state.newest("j")
    story.exit_rank("n0")
    assert [one for one in job.recovery.judgements if "n0" in one.nodes]
    known = story.core.state.nodes["n0"]
    strikes = list(known.blame.strikes)
    known.spec = replace(known.spec, machine="m-x")
    story.core.state = replace(story.core.state)
    story.tell(events.NodeDisconnected("n0"))
    hello = events.NodeConnected(
        node="gpu-0",
        boot_id="2",
        agent_version="0.1.0",
        outbox="n0-box",
        highest_term=story.core.state.term,
        host="n0",
        machine="m-x",
    )
    story.tell(hello)
    assert story.core.state.nodes["gpu-0"].blame.strikes == strikes
    assert not [one for one in job.recovery.judgements if "n0" in one.nodes]


def test_a_member_with_another_name_is_lost_for_its_job_until_that_has_gone_on() -> None:
    story = Fleet()
    story.hello("n1", box="n1-box", hardware=Inventory())
    story.run()
    story.join("n2")
    story.leave("n1")
    story.hello("new", box="n1-box", boot="2", hardware=Inventory())
    assert story.state("n1") is NodeState.LOST
    assert "it is new now" in story.core.state.nodes["n1"].reason
    job = story.core.state.newest("j")
    assert job.state is JobState.STOPPING
    story.forget("n1")
    assert "n1" in story.names, "its job counts it as a member still"
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(1, 1), "j")
    )
    story.choose(None)
    assert job.generation.members == ["n0", "n2"]
    story.forget("n1")
    assert "n1" not in story.names
    from_every_prefix(story)


def test_what_operators_have_ordered_of_it_holds_under_the_new_name() -> None:
    story = Fleet()
    story.hello("old")
    story.tell(events.AutomationPaused("old", "ann", "by hand"))
    begin_ns = story.now_ns + 3600 * S
    story.tell(
        events.MaintenanceOrdered(
            nodes=("old", "n5"), begin_ns=begin_ns, end_ns=begin_ns + 3600 * S, operator="ann"
        )
    )
    story.leave("old")
    story.hello("new")
    (window,) = story.core.state.windows.values()
    assert window.span.nodes == ("new", "n5")
    assert list(story.core.state.paused) == ["new"]


def test_a_name_that_was_given_away_is_a_new_node_when_another_machine_has_it() -> None:
    story = _isolated()
    story.hello("new", boot="2")
    story.hello("old", machine="m-z", box="z-box", hardware=OTHER_GPUS)
    assert story.owners("old") == []
    story.forget("old")
    assert story.state("old") is NodeState.PROBATION


def test_a_node_may_be_renamed_back() -> None:
    story = _isolated()
    story.hello("new", boot="2")
    story.leave("new")
    story.hello("old", boot="3")
    assert story.owners("old") == ["operator"]
    story.forget("new")
    assert "new" not in story.names


# --- who is not the same -------------------------------------------------------------------------


def test_two_agents_with_one_machine_id_that_are_both_there_stay_two_and_are_told() -> None:
    story = Fleet()
    story.hello("one", box="one-box")
    story.tell(events.OperatorIsolated("one", "ann", "fan"))
    story.hello("two", box="two-box", boot="2", hardware=OTHER_GPUS)
    assert story.owners("one") == ["operator"]
    assert story.owners("two") == []
    (found,) = machines.findings(story.core.state)
    assert "one, two are different machines with the same machine id" in found.finding.message
    assert "systemd-machine-id-setup" in found.finding.rule
    story.tell(events.NodeDisconnected("two"))
    assert not list(machines.findings(story.core.state))


@pytest.mark.parametrize("box", ["one-box", "two-box"])
def test_a_copy_of_a_machine_that_is_off_is_told_by_its_hardware(box: str) -> None:
    story = Fleet()
    story.hello("one", box="one-box")
    story.tell(events.OperatorIsolated("one", "ann", "fan"))
    story.lose("one")
    story.hello("two", box=box, boot="2", hardware=OTHER_GPUS)
    assert story.owners("two") == []
    assert "operator" in story.owners("one")


def test_a_copy_with_the_data_folder_stays_apart_while_the_first_is_there() -> None:
    story = Fleet()
    story.hello("one", hardware=Inventory())
    story.hello("two", boot="2", hardware=Inventory())
    assert {"one", "two"} <= set(story.names)
    assert list(machines.findings(story.core.state))


def test_nodes_that_are_played_on_one_machine_are_neither_one_nor_told_of() -> None:
    story = Fleet()
    for name in ("one", "two", "three"):
        story.hello(name, box=f"{name}-box")
    story.lose("one")
    story.hello("four", box="four-box")
    assert {"one", "two", "three", "four"} <= set(story.names)
    assert not list(machines.findings(story.core.state))


def test_without_a_machine_id_or_any_evidence_nobody_is_the_same() -> None:
    story = Fleet()
    story.hello("one", machine="")
    story.leave("one")
    story.hello("two", machine="", boot="2")
    story.hello("three", box="three-box", machine="m-y", hardware=Inventory())
    story.leave("three")
    story.hello("four", box="four-box", machine="m-y", boot="2", hardware=Inventory())
    assert {"one", "two", "three", "four"} <= set(story.names)


def test_a_machine_id_that_a_whole_image_has_tells_nothing() -> None:
    story = Fleet()
    for number in range(20):
        parts = Inventory(accelerators=(_gpu(f"GPU-{number}"),))
        story.hello(f"c{number}", box=f"c{number}-box", boot=str(number), hardware=parts)
    story.leave("c0")
    story.hello("new", box="c0-box", boot="99", hardware=Inventory(accelerators=(_gpu("GPU-0"),)))
    assert {"c0", "new"} <= set(story.names)
    (found,) = machines.findings(story.core.state)
    assert "and 16 more" in found.finding.message


_MANAGEMENT = "be:3a:f2:b6:05:9f"


def _cards(*addresses: str) -> Inventory:
    """Return network ports, one of which has the same address in each machine of a kind."""
    return Inventory(interfaces=tuple(_port(one) for one in (*addresses, _MANAGEMENT)))


@pytest.mark.parametrize("there", [True, False])
def test_a_copy_with_a_management_port_of_the_same_address_takes_no_node(*, there: bool) -> None:
    story = Fleet()
    story.hello("one", box="one-box", hardware=_cards("04:3f:72:00:00:01", "04:3f:72:00:00:02"))
    story.tell(events.OperatorIsolated("one", "ann", "fan"))
    if not there:
        story.lose("one")
    cards = _cards("04:3f:72:00:00:03", "04:3f:72:00:00:04")
    story.hello("two", box="two-box", boot="2", hardware=cards)
    assert story.core.state.nodes["one"].liveness.connected is there
    assert story.owners("two") == []
    assert "operator" in story.owners("one")


def test_a_node_whose_cards_were_replaced_in_part_is_told_by_its_data_folder() -> None:
    story = Fleet()
    story.hello("old", hardware=_cards("04:3f:72:00:00:01", "04:3f:72:00:00:02"))
    story.tell(events.OperatorIsolated("old", "ann", "swap the card"))
    story.leave("old")
    story.hello("new", boot="2", hardware=_cards("04:3f:72:00:00:08", "04:3f:72:00:00:09"))
    assert story.owners("new") == ["operator"]


# --- what is said of an old name -----------------------------------------------------------------


def _renamed() -> Fleet:
    """Return a member of a job that has another name by now, so that its old one is kept."""
    story = Fleet()
    story.hello("n1", box="n1-box", hardware=Inventory())
    story.run()
    for boot, name in enumerate(("old", "new"), start=2):
        story.leave("n1" if name == "old" else "old")
        story.hello(name, box="n1-box", boot=str(boot), hardware=Inventory())
    return story


def test_claims_under_an_old_name_are_claims_on_the_node() -> None:
    story = _renamed()
    story.tell(events.OperatorIsolated("n1", "ann", "fan"))
    assert story.owners("new") == ["operator"]
    assert "operator" not in story.owners("n1")
    story.tell(events.OperatorReleased("n1", "ann", "done"))
    assert story.owners("new") == []
    story.tell(events.OperatorDrained("n1", "ann", "fan"))
    assert story.core.state.index.draining == ["new"]
    from_every_prefix(story)


def test_a_pause_and_a_window_for_an_old_name_are_for_the_node() -> None:
    story = _renamed()
    story.tell(events.AutomationPaused("n1", "ann", "by hand"))
    assert list(story.core.state.paused) == ["new"]
    begin_ns = story.now_ns + 3600 * S
    story.tell(
        events.MaintenanceOrdered(
            nodes=("n1", "n5"), begin_ns=begin_ns, end_ns=begin_ns + 3600 * S, operator="ann"
        )
    )
    (window,) = story.core.state.windows.values()
    assert window.span.nodes == ("new", "n5")
    story.tell(events.AutomationResumed("n1", "ann"))
    assert not story.core.state.paused


def test_a_name_that_nobody_has_any_more_is_the_node_that_had_it() -> None:
    story = _isolated()
    story.hello("new", boot="2")
    story.lose("new")
    story.tell(events.NodeRemoved("new", "ann", "sold"))
    story.tell(events.OperatorIsolated("old", "ann", "fan"))
    assert "operator" in story.owners("old")


# --- journals ------------------------------------------------------------------------------------


def test_a_journal_that_is_read_knows_machines() -> None:
    story = _isolated()
    story.core.state = decode_state(encode(story.core.state))
    story.tell(events.ControllerStarted("0.2.0"))
    story.hello("new", boot="2")
    assert story.owners("new") == ["operator"]


def test_a_renamed_node_is_in_what_a_journal_keeps() -> None:
    story = _isolated()
    story.hello("new", boot="2")
    assert decode_state(encode(story.core.state)) == story.core.state
