"""A fleet's GPUs in virtual time before their judge, with the noise of clocks that are well.

Where work draws all the power, clocks are what the silicon makes of it; else they are at the top.
Pauses, steps between both, wrong readings and lost messages come with a seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from everstep_common.judging.findings import FindingKey
from everstep_common.reports.gpu_columns import HeldBy
from everstep_controller.core.events import VerdictChanged
from everstep_controller.judging.evaluator import Evaluator, Verdict
from everstep_controller.judging.gpu_peers import GpuPeersJudge
from everstep_controller.judging.gpu_view import SLOT_NS, SLOTS, GpuView, Work
from everstep_controller.judging.link_peers import LinkPeersJudge
from everstep_controller.judging.view import FleetView
from everstep_controller.telemetry.samples import SampleRing

H100 = "NVIDIA H100 80GB HBM3"
_MAX_MHZ, _CAPPED_MHZ = 1980, 1600
_BEGIN_S = 1_000_000


@dataclass
class SlotOfGpus:
    """What all GPUs did in one slot: arrays of nodes and GPUs, which a fault may change."""

    clock: NDArray[np.uint16]
    busy: NDArray[np.uint8]
    held: NDArray[np.uint8]
    width: NDArray[np.uint8]
    generation: NDArray[np.uint8]


Fault = Callable[["SlotOfGpus"], None]


@dataclass
class VirtualGpus:
    """Nodes of eight GPUs each; ``works`` and ``domains`` are by node."""

    nodes: int
    seed: int = 1
    works: Sequence[Work | None] = ()
    domains: Sequence[str] = ()
    models: Sequence[tuple[str, ...]] = ()
    gpus: int = 8
    # Share of slots in which the work of nearly all draws all the power that it may.
    capped: float = 0.5
    faults: list[Fault] = field(default_factory=list)
    now_s: float = _BEGIN_S
    slots: list[SlotOfGpus] = field(default_factory=list)
    verdicts: dict[str, dict[FindingKey, Verdict]] = field(default_factory=dict)
    told: list[VerdictChanged] = field(default_factory=list)
    evaluator: Evaluator = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(f"n{number}" for number in range(self.nodes))
        self.works = self.works or [Work("j-1", 0)] * self.nodes
        self.domains = self.domains or [""] * self.nodes
        self.models = self.models or [(H100,) * self.gpus] * self.nodes
        self._rng = np.random.default_rng(self.seed)
        # Silicon and its place make what a GPU reaches within its power: some percent.
        self._silicon = self._rng.normal(1.0, 0.015, (self.nodes, self.gpus))
        self._tails = 0.01 * self._rng.standard_t(3, 20_000).clip(-12, 4)
        self.restart()

    def restart(self) -> None:
        """Begin anew with what the core keeps, as after a restart of the controller."""
        self.evaluator = Evaluator((GpuPeersJudge(), LinkPeersJudge()))
        self.slots = []

    def pass_slots(self, count: int = 1) -> None:
        """Let time pass without a look."""
        for _ in range(count):
            self.now_s += SLOT_NS / 1e9
            slot = self._healthy()
            for fault in self.faults:
                fault(slot)
            self.slots = [*self.slots[-SLOTS + 1 :], slot]

    def look(self, slots: int = 1) -> list[VerdictChanged]:
        """Let time pass, with a look at each slot; return what changed."""
        changed: list[VerdictChanged] = []
        for _ in range(slots):
            self.pass_slots()
            changed += self.judge()
        return changed

    def judge(self) -> list[VerdictChanged]:
        """Look once; return what changed."""
        view = self.view()
        held = {node: tuple(each.values()) for node, each in self.verdicts.items()}
        changed = self.evaluator.evaluate(view, GpuPeersJudge().judge(view), held)
        for one in changed:
            kept = self.verdicts.setdefault(one.node, {})
            if one.finding is None:
                kept.pop(one.key, None)
            else:
                kept[one.key] = Verdict(one.finding, view.now_ns)
            if not kept:
                del self.verdicts[one.node]
        self.told += changed
        return changed

    @property
    def open(self) -> set[tuple[str, str]]:
        """Return the nodes (or domains) and conditions that are open."""
        return {
            (node or key.component, key.condition)
            for node, held in self.verdicts.items()
            for key in held
        }

    def view(self) -> FleetView:
        """Return what the shell would show."""
        last = int(self.now_s * 1e9) // SLOT_NS
        unknown = np.full(self.nodes, np.nan)
        empty = np.zeros((self.nodes, self.gpus))
        kept = [_columns(slot) for slot in self.slots]
        kept = [(empty,) * 5] * (SLOTS - len(kept)) + kept
        clock, busy, held, width, generation = (np.stack(each) for each in zip(*kept, strict=True))
        return FleetView(
            now_ns=int(self.now_s * 1e9),
            nodes=self.names,
            clock_uncertainty_s=unknown,
            wall_offset_s=unknown,
            stream_age_s=unknown,
            sample_age_s=unknown,
            samples=SampleRing(1),
            domains=tuple(self.domains),
            works=tuple(self.works),
            gpus=GpuView(
                devices=(tuple(f"0000:{gpu:02x}:00.0" for gpu in range(self.gpus)),) * self.nodes,
                models=tuple(self.models),
                begins_ns=np.arange(last - SLOTS + 1, last + 1) * SLOT_NS,
                sm_clock_mhz=clock.astype(np.uint16),
                busy=busy.astype(np.uint8),
                held=held.astype(np.uint8),
                pcie_width=width.astype(np.uint8),
                pcie_generation=generation.astype(np.uint8),
            ),
        )

    def _healthy(self) -> SlotOfGpus:
        rng, shape = self._rng, (self.nodes, self.gpus)
        chance = rng.random(shape, dtype=np.float32)
        capped = chance < (0.95 if rng.random() < self.capped else 0.05)
        # Heavy tails, as Student's t with three degrees of freedom.
        noise = 1 + rng.choice(self._tails, shape)
        clock = np.where(capped, _CAPPED_MHZ * self._silicon * noise, _MAX_MHZ)
        # Between two phases of work a clock may be anywhere, with or without a reason.
        between = chance > 0.98
        clock = np.where(between, rng.uniform(600, _MAX_MHZ, shape), clock)
        held = np.where(capped, int(HeldBy.POWER_CAP), 0)
        held = np.where(chance > 0.995, int(HeldBy.HEAT | HeldBy.HARDWARE), held)
        # All idle at once at a checkpoint, single ones at any time; messages are lost.
        busy = np.where(chance > 0.97, 0, 5) * (rng.random() > 0.05)
        busy = busy * (rng.random((self.nodes, 1)) > 0.01)
        wrong = rng.random(shape, dtype=np.float32)
        clock = np.where(wrong < 1e-3, 0, np.where(wrong > 1 - 1e-3, 65_535, clock))
        return SlotOfGpus(
            clock=np.minimum(clock, 65_535).astype(np.uint16),
            busy=np.broadcast_to(busy, shape).astype(np.uint8),
            held=held.astype(np.uint8),
            width=np.full(shape, 16, np.uint8),
            generation=np.full(shape, 5, np.uint8),
        )


def _columns(slot: SlotOfGpus) -> tuple[NDArray[np.generic], ...]:
    return slot.clock, slot.busy, slot.held, slot.width, slot.generation


def low_clock(node: int, gpu: int | slice, mhz: int = 1230, held: int = 0) -> Fault:
    """Return a fault: GPUs of a node never run faster, whatever their work is."""

    def apply(slot: SlotOfGpus) -> None:
        slot.clock[node, gpu] = np.minimum(slot.clock[node, gpu], mhz)
        slot.held[node, gpu] = held

    return apply


def braked(node: int, gpu: int | slice = slice(None)) -> Fault:
    """Return a fault: the power brake holds GPUs of a node."""

    def apply(slot: SlotOfGpus) -> None:
        slot.clock[node, gpu] = np.minimum(slot.clock[node, gpu], 900)
        slot.held[node, gpu] = int(HeldBy.POWER_BRAKE | HeldBy.HARDWARE)

    return apply


def narrow(node: int, gpu: int, width: int = 8, generation: int = 5) -> Fault:
    """Return a fault: a GPU has fewer lanes, or slower ones."""

    def apply(slot: SlotOfGpus) -> None:
        slot.width[node, gpu], slot.generation[node, gpu] = width, generation

    return apply
