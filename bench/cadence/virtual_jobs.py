"""Cadence in virtual time: a job whose snapshots stall it as was measured, with faults at random.

Decisions are those of the controller's core and of the agent's rules, from the job's own ledger and
costs. A step is safe when its snapshot ends; what replicas add is left out.
"""

import random

from cadence.rows import Cell, Run

from everstep_agent.vault.snapshots.cadence import Cadence as KnownRules
from everstep_agent.vault.snapshots.cadence import CadenceRule
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.vault.cadence import CadenceBasis, decide_cadence
from unit.core.vault.vault_story import job

_S = 1_000_000_000
# What snapshots differ by, on a machine that does nothing else.
_NOISE = 0.1
# Not to save a step costs this.
_UNSAVED_NS = 2_000
# How often the controller decides.
_DECIDED_NS = _S
# From a fault until the ranks begin their next step.
_RESTART_NS = 5 * _S
# The share of time is that after a minute and 101 steps, when the cost is known, and some slack.
_KNOWN_STEPS, _KNOWN_NS = 120, 90 * _S


class VirtualJob:
    """A job with faults at random; ``every_step`` as with `--snapshot-every 1`."""

    def __init__(self, cell: Cell, stall_s: float, seed: int, every_step: bool) -> None:
        self._rng = random.Random(seed)
        self._step_ns = round(cell.step_s * _S)
        self._usual_ns = stall_s * _S
        self._every_step = every_step
        self._record = job()
        self._record.ledger.enter(0, Category.INIT_PROC)
        self._rules, self._generation = KnownRules(1), 1
        self._now_ns = self._decided_ns = self._stalled_ns = self._counted_ns = 0
        self._saved, self._step, self._steps = -1, 0, 0
        self._failures_ns: list[int] = []
        self._lost: list[int] = []
        self._record.ledger.begin_steps(0, warmup=False)

    def run(self, faults: int, mean_s: float) -> Run:
        """Train until so many faults have come, at random with this mean time between them."""
        while len(self._lost) < faults:
            fault_ns = self._now_ns + round(self._rng.expovariate(1 / mean_s) * _S)
            while self._now_ns < fault_ns:
                self._train_step()
            self._fail()
        share = self._stalled_ns / max(1, self._counted_ns)
        return Run(tuple(self._lost), share, self._record.cadence.every)

    def _train_step(self) -> None:
        wanted = self._rules.next_step(self._generation, self._step) == self._step
        stall_ns = self._stall_ns() if wanted else _UNSAVED_NS
        took_ns = self._step_ns + stall_ns
        self._now_ns += took_ns
        record = self._record
        record.ledger.commit_step(self._step, self._now_ns, stall_ns)
        record.snapshot_costs.record(record.cadence, self._step, stall_ns)
        record.lineage.last_step = self._step
        self._saved = self._step if wanted else self._saved
        self._step += 1
        self._steps += 1
        if self._steps > _KNOWN_STEPS and self._now_ns > _KNOWN_NS:
            self._stalled_ns += stall_ns
            self._counted_ns += took_ns
        if self._now_ns - self._decided_ns >= _DECIDED_NS:
            self._decide()

    def _stall_ns(self) -> int:
        return round(self._usual_ns * self._rng.uniform(1 - _NOISE, 1 + _NOISE))

    def _decide(self) -> None:
        self._decided_ns = self._now_ns
        if self._every_step:
            return
        before, basis = self._record.cadence, CadenceBasis(self._failures_ns, Settings())
        decided = decide_cadence(before, self._record, basis, self._now_ns)
        if decided is not before:
            self._record.cadence = decided
            self._tell()

    def _tell(self) -> None:
        cadence = self._record.cadence
        rule = CadenceRule(cadence.start, cadence.every)
        self._rules = self._rules.with_rule(self._generation, rule)

    def _fail(self) -> None:
        """Go back to the newest snapshot; the step in flight counts as none."""
        self._lost.append(self._step - 1 - self._saved)
        self._failures_ns.append(self._now_ns)
        self._decide()
        self._now_ns += _RESTART_NS
        self._step, self._generation = self._saved + 1, self._generation + 1
        self._record.lineage.last_step = self._saved
        self._record.ledger.begin_steps(self._now_ns, warmup=True)
        # As the controller directs a new generation: its rule holds from the first step on.
        rule = CadenceRule(0, self._record.cadence.every)
        self._rules = self._rules.with_rule(self._generation, rule)
