"""Random events: claims, humans, deletions, dead servers and killed controllers, by a seed.

Whatever comes together, no mark of a human is ever changed, nothing is marked twice, and when it is
quiet again every node is as it is wanted and nothing more is written. A node is changed once at
most for each claim that came or went, and each act of a human on it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from everstep_controller.core.model.isolation import Hold
from everstep_controller.drivers.kubernetes.api_server import Call
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.driver import KubernetesDriver
from everstep_controller.drivers.port import DriverContext, DriverError
from kubernetes_suite.cluster import Cluster, free, wanted

_NODES = 8
_TAINT = "everstep.io/isolated"
_QUIET_EVERY = 40
_ROUNDS_MAX = 400


@dataclass
class Model:
    """What is wanted, what humans did, and what a controller knows of it."""

    names: list[str]
    claims: set[str] = field(default_factory=set)
    cordoned: set[str] = field(default_factory=set)
    tainted: dict[str, set[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    held: dict[str, Hold] = field(default_factory=dict)
    overridden: set[str] = field(default_factory=set)
    # How often each node was given reason to be changed by us, and was.
    causes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)

    def due(self) -> list[str]:
        """Return the nodes of which something is to be asked, as the core asks it."""
        found = []
        for name in self.names:
            hold = self.held.get(name)
            foreign = hold is not None and not hold.ours
            left = foreign or name in self.overridden | self.gone
            if not left and (name in self.claims) != (hold is not None):
                found.append(name)
        return found

    def see(self, holds: dict[str, Hold]) -> None:
        """Take a reading; a hold of ours that has gone in spite of a claim was freed by others."""
        for name in self.names:
            had, now = self.held.get(name), holds.get(name)
            if had is not None and had.ours and now is None and name in self.claims:
                self.overridden.add(name)
            if now is not None and now.ours:
                self.overridden.discard(name)
        self.held = dict(holds)


class Player:
    """Plays one game."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.human = cluster, cluster.human
        self.random = random.Random(seed)
        self.model = Model(cluster.make(_NODES))
        self.driver: KubernetesDriver | None = None
        # With an odd seed we cordon as well, and then humans do not: nobody could tell them apart.
        self.cordons = seed % 2 == 1

    async def begin_driver(self) -> None:
        """Start a driver anew; of the one before, nothing is left but what it wrote."""
        if self.driver is not None:
            await self.driver.close()
        config = KubernetesDriverConfig(access=str(self.cluster.kubeconfig), cordon=self.cordons)
        self.driver = config.driver(  # type: ignore[assignment]
            DriverContext(20.0, lambda: self.model.names, lambda: "c1")
        )
        assert self.driver is not None
        self._count(self.driver)

    def _count(self, driver: KubernetesDriver) -> None:
        """Count the changes of nodes that the server has answered; conditions are none."""
        send = driver._server.send

        async def counted(call: Call) -> bytes:
            answer = await send(call)
            if (call.verb, call.resource) == ("patch", "nodes"):
                self.model.changes[call.path.rpartition("/")[2]] += 1
            return answer

        driver._server.send = counted  # type: ignore[method-assign]

    async def reconcile(self) -> bool:
        """Read, and ask for what differs; return whether nothing did."""
        assert self.driver is not None
        try:
            view = await self.driver.read()
            self.model.see(dict(view.holds))
            due = self.model.due()
            if not due:
                return True
            wishes = [wanted(name) if name in self.model.claims else free(name) for name in due]
            applied = await self.driver.apply(wishes)
        except DriverError:
            return False
        for name, hold in applied.now.items():
            self.model.held.pop(name, None)
            if hold is not None:
                self.model.held[name] = hold
        return False

    def meddle(self) -> None:
        """Do what humans do to one node."""
        name, model, human = self.random.choice(self.model.names), self.model, self.human
        taints = model.tainted.setdefault(name, set())
        model.causes[name] += 1
        what = self.random.choice(["cordon", "taint", "untaint", "free", "delete", "label"])
        if name in model.gone:
            human.make(name)
            model.gone.discard(name)
        elif what == "cordon" and not self.cordons:
            human.cordon(name, on=name not in model.cordoned)
            model.cordoned ^= {name}
        elif what == "taint" and len(taints) < 3:
            key = f"site.example/t{self.random.randrange(1000)}"
            if key not in taints:
                human.taint(name, key)
                taints.add(key)
        elif what == "untaint" and taints:
            key = self.random.choice(sorted(taints))
            human.untaint(name, key)
            taints.discard(key)
        elif what == "free":
            human.free(name, _TAINT, uncordon=self.cordons)
        elif what == "delete":
            human.delete(name)
            model.gone.add(name)
            model.cordoned.discard(name)
            taints.clear()
        else:
            human.patch(name, {"metadata": {"labels": {"x": str(self.random.randrange(9))}}})

    def claim(self) -> None:
        """Have a claim come or go."""
        name = self.random.choice(self.model.names)
        self.model.claims ^= {name}
        self.model.causes[name] += 1
        self.model.overridden.discard(name)

    def check_humans(self) -> None:
        """Assert that all is there that humans did, and nothing twice."""
        for name in self.model.names:
            if name in self.model.gone:
                continue
            spec = self.human.node(name)["spec"]
            rows = [(one["key"], one["effect"]) for one in spec.get("taints") or []]
            theirs = {key for key, _ in rows if key.startswith("site.example/")}
            assert theirs == self.model.tainted.get(name, set()), name
            is_ours = self.cordons and _TAINT in {key for key, _ in rows}
            is_cordoned = name in self.model.cordoned or is_ours
            assert bool(spec.get("unschedulable")) == is_cordoned, name
            assert len(rows) == len(set(rows)), rows

    async def settle(self) -> None:
        """Let it become quiet, and assert that every node is as it is wanted."""
        for name in sorted(self.model.gone):
            self.human.make(name)
            self.model.causes[name] += 1
        self.model.gone.clear()
        quiet, wrong = 0, list[str]()
        for _ in range(_ROUNDS_MAX):
            quiet = quiet + 1 if await self.reconcile() else 0
            if quiet >= 3 and not (wrong := self.wrong()):
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(
                f"it does not become quiet: {wrong if quiet else 'no end of wishes'}"
            )
        self.check_humans()
        too_often = self.model.changes - self.model.causes
        assert not too_often, (self.model.changes, self.model.causes)

    def wrong(self) -> list[str]:
        """Return what is not as it is wanted."""
        found = []
        for name in self.model.names:
            node = self.human.node(name)
            hold = self.model.held.get(name)
            tainted = any(one["key"] == _TAINT for one in node["spec"].get("taints") or [])
            condition = self.human.condition(name)
            if condition is None or condition["status"] != str(tainted):
                found.append(f"{name}: its condition is {condition}, tainted: {tainted}")
            foreign = hold is not None and not hold.ours
            wants = name in self.model.claims and name not in self.model.overridden
            if not foreign and tainted != wants:
                found.append(f"{name}: tainted: {tainted}, wanted: {wants}")
            if not tainted and node["metadata"].get("annotations"):
                found.append(f"{name}: {node['metadata']['annotations']}")
        return found


@asynccontextmanager
async def _played(player: Player) -> AsyncIterator[Player]:
    try:
        yield player
    finally:
        if player.driver is not None:
            await player.driver.close()


async def play(cluster: Cluster, seed: int, events: int) -> None:
    """Play a game of so many events."""
    async with cluster.driver([]):
        pass  # its rights are there
    async with _played(Player(cluster, seed)) as player:
        await player.begin_driver()
        for count in range(events):
            what = player.random.choices(
                ["human", "claim", "kill", "restart", "compact"], [50, 35, 5, 3, 2]
            )[0]
            if what == "human":
                work = asyncio.create_task(player.reconcile())
                await asyncio.sleep(player.random.choice([0.0, 0.005, 0.02]))
                await asyncio.to_thread(player.meddle)
                await work
            elif what == "claim":
                player.claim()
                await player.reconcile()
            elif what == "kill":
                work = asyncio.create_task(player.reconcile())
                await asyncio.sleep(player.random.choice([0.0, 0.005, 0.02]))
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                await player.begin_driver()
            elif what == "restart":
                await asyncio.to_thread(cluster.server.stop)
                await player.reconcile()
                await asyncio.to_thread(cluster.server.start)
            else:
                await asyncio.to_thread(cluster.server.compact)
            if count % _QUIET_EVERY == _QUIET_EVERY - 1:
                await player.settle()
        await player.settle()
