"""Groups of nodes at schedulers: who is told of whom, and what becomes of a node that leaves."""

from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.core.model.node import SCHEDULER
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.isolation_differences import (
    changed_holds,
    changed_labels,
    own_nodes,
)
from everstep_controller.core.nodes.isolation_view import isolation_sentences
from everstep_controller.journal.codec import decode_state, encode
from unit.core.nodes.scheduler_world import Scheduler
from unit.core.test_decisions import XID, Story

SLURM, KUBE = "slurm", "kubernetes"


class Sites(Story):
    """A core with two drivers; each call is carried out at once by the scheduler that it is for."""

    def __init__(self, groups: dict[str, Group] | None = None, nodes: int = 4) -> None:
        self.schedulers = {SLURM: Scheduler(), KUBE: Scheduler()}
        self.told: dict[str, dict[str, dict[str, str]]] = {SLURM: {}, KUBE: {}}
        self.settings = Settings(mode=Mode.ENFORCE)
        self.groups = groups or {}
        super().__init__(0, self.settings)
        self.configure(self.groups)
        for index in range(nodes):
            self.connect(f"n{index}")

    def configure(self, groups: dict[str, Group]) -> None:
        self.groups = groups
        self.tell(events.SettingsApplied(self.settings, (SLURM, KUBE), groups))

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        done = super().tell(event, after_s)
        for action in done:
            if isinstance(action, actions.ReadIsolation):
                self.read(action.driver)
            elif isinstance(action, actions.ApplyIsolation):
                results = tuple(map(self.schedulers[action.driver].apply, action.wanted))
                self.tell(events.DriverReported(driver=action.driver, results=results))
        return done

    def read(self, driver: str) -> None:
        """Read a scheduler; the labels of nodes are told as well."""
        record = self.core.state.drivers[driver]
        keys = self.core.state.group_table.label_keys
        known = {
            name: {key: value for key, value in labels.items() if key in keys}
            for name, labels in self.told[driver].items()
        }
        self.tell(
            events.DriverReported(
                driver=driver,
                read=True,
                seen=changed_holds(record, self.schedulers[driver].holds),
                labels=changed_labels(record, {k: v for k, v in known.items() if v}),
            )
        )

    def isolate(self, *names: str) -> None:
        for name in names:
            self.tell(events.OperatorIsolated(name, "ops", "drill"))

    def held(self, driver: str) -> list[str]:
        return sorted(self.schedulers[driver].holds)

    def asked(self, driver: str) -> list[WantedIsolation]:
        return self.schedulers[driver].applied


TWO = {
    "batch": Group(nodes=("n0", "n1"), drivers=(SLURM,)),
    "pods": Group(nodes=("n2",), drivers=(KUBE,), cordon=True),
}


def test_each_driver_is_told_of_the_nodes_of_its_groups_and_both_of_all_others() -> None:
    sites = Sites(TWO)
    sites.isolate("n0", "n1", "n2", "n3")
    assert sites.held(SLURM) == ["n0", "n1", "n3"]
    assert sites.held(KUBE) == ["n2", "n3"]
    assert own_nodes(sites.core.state, SLURM) == {"n0", "n1", "n3"}
    assert [one.cordon for one in sites.asked(KUBE)] == [True, None]
    assert [one.cordon for one in sites.asked(SLURM)] == [None, None, None]


def test_a_node_that_leaves_the_group_of_a_driver_is_freed_there_once() -> None:
    sites = Sites(TWO)
    sites.isolate("n0", "n1")
    moved = {
        "batch": Group(nodes=("n1",), drivers=(SLURM,)),
        "pods": Group(nodes=("n0",), drivers=(KUBE,)),
    }
    asked = len(sites.asked(SLURM))
    sites.configure(moved)
    assert (sites.held(SLURM), sites.held(KUBE)) == (["n1"], ["n0"])
    assert [(one.node, one.withheld) for one in sites.asked(SLURM)[asked:]] == [("n0", False)]
    sites.read(SLURM)
    sites.configure(moved)
    assert len(sites.asked(SLURM)) == asked + 1
    assert not sites.core.state.nodes["n0"].usable


def test_a_start_with_other_groups_frees_what_is_not_its_own_any_more_after_a_reading() -> None:
    sites = Sites(TWO)
    sites.isolate("n0")
    sites.core = Core(decode_state(encode(sites.core.state)))
    sites.tell(events.ControllerStarted("0.1.0"))
    assert own_nodes(sites.core.state, SLURM) == {"n0", "n1", "n3"}
    sites.configure({"pods": Group(nodes=("n0",), drivers=(KUBE,))})
    assert sites.held(SLURM) == ["n0"], "nothing is asked for before the scheduler was read"
    for call in sites.core.due(sites.now_ns):
        if isinstance(call, actions.ReadIsolation):
            sites.read(call.driver)
    assert (sites.held(SLURM), sites.held(KUBE)) == ([], ["n0"])


def test_what_others_withhold_where_a_node_is_not_managed_is_no_claim_and_never_freed() -> None:
    sites = Sites(TWO)
    sites.schedulers[KUBE].drain("n0")
    sites.schedulers[SLURM].drain("n1")
    sites.read(KUBE)
    sites.read(SLURM)
    assert (sites.owners("n0"), sites.owners("n1")) == ([], [SCHEDULER])
    sites.isolate("n0")
    assert sites.schedulers[KUBE].holds["n0"] == Hold("ann: cables", ours=False)
    assert sites.asked(KUBE) == []


def test_a_hold_of_others_counts_as_soon_as_a_node_is_of_that_driver() -> None:
    sites = Sites(TWO)
    sites.schedulers[KUBE].drain("n0")
    sites.read(KUBE)
    sites.configure({"pods": Group(nodes=("n0",), drivers=(KUBE,))})
    assert sites.owners("n0") == [SCHEDULER]
    sites.configure(TWO)
    assert sites.owners("n0") == []


def test_of_several_groups_all_drivers_are_told_that_they_name() -> None:
    sites = Sites(
        {
            "a": Group(nodes=("n0", "n1"), drivers=(SLURM,)),
            "b": Group(nodes=("n0",), drivers=(KUBE,)),
            "c": Group(nodes=("n0", "n1")),
            "none": Group(nodes=("n2",), drivers=()),
        }
    )
    sites.isolate("n0", "n1", "n2")
    assert (sites.held(SLURM), sites.held(KUBE)) == (["n0", "n1"], ["n0"])


def test_labels_of_a_scheduler_put_nodes_into_groups_and_take_them_out() -> None:
    sites = Sites({"gpu": Group(labels=("partition=gpu", "h100"), drivers=(SLURM,))})
    sites.told[SLURM] = {
        "n0": {"partition": "debug,gpu", "owner": "ann"},
        "n1": {"h100": ""},
        "n2": {"partition": "gpus"},
    }
    sites.read(SLURM)
    assert sites.core.state.drivers[SLURM].labels == {
        "n0": {"partition": "debug,gpu"},
        "n1": {"h100": ""},
        "n2": {"partition": "gpus"},
    }, "only what groups select by is kept"
    sites.isolate("n0", "n1", "n2")
    assert (sites.held(SLURM), sites.held(KUBE)) == (["n0", "n1", "n2"], ["n2"])
    sites.told[SLURM]["n0"] = {"partition": "debug"}
    del sites.told[SLURM]["n1"]
    sites.read(SLURM)
    assert sites.held(KUBE) == ["n0", "n1", "n2"]
    assert sites.core.state.index == sites.core.state.compute_index()


def test_labels_that_no_group_asks_for_any_more_are_forgotten() -> None:
    sites = Sites({"gpu": Group(labels=("partition=gpu",), drivers=(SLURM,))})
    sites.told[SLURM] = {"n0": {"partition": "gpu"}}
    sites.read(SLURM)
    assert sites.core.state.index.groups_of("n0") == ("gpu",)
    sites.configure({})
    assert sites.core.state.drivers[SLURM].labels == {}
    assert decode_state(encode(sites.core.state)).index == sites.core.state.index


def test_a_node_is_of_the_domain_and_of_those_that_it_is_in() -> None:
    sites = Sites({"row": Group(domains=("row-1",)), "rack": Group(domains=("row-1/rack-7/",))})
    table = sites.core.state.group_table
    assert table.names_of("n0", "row-1/rack-7", ()) == ("rack", "row")
    assert table.names_of("n0", "row-1", ()) == ("row",)
    assert table.names_of("n0", "row-10/rack-7", ()) == ()


def test_a_mode_of_a_group_holds_for_its_nodes_alone() -> None:
    sites = Sites({"new": Group(nodes=("n0",), mode=Mode.ADVISE)})
    sites.find("n0", XID)
    sites.find("n1", XID)
    assert (sites.owners("n0"), sites.owners("n1")) == ([], ["automation"])
    assert "the mode of XidFatal is advise" not in sites.core.state.nodes["n0"].reason
    sites.configure({"new": Group(nodes=("n0",), mode=Mode.ENFORCE)})
    assert sites.owners("n0") == ["automation"]


def test_a_node_that_a_driver_has_still_to_free_says_so() -> None:
    sites = Sites(TWO)
    sites.isolate("n0")
    sites.schedulers[SLURM].broken = "slurmctld is away"
    sites.configure({"pods": Group(nodes=("n0",), drivers=(KUBE,))})
    (said,) = isolation_sentences(sites.core.state, "n0")
    assert said == "driver slurm is to free it there: it is not among its nodes now"
