"""Kinds of hangs: a user's script, what it does, and what is done to one of its ranks."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from field.jobs.shapes import HANGING, Shape

_CHECKPOINT = ("--checkpoint", "{out}/checkpoint", "--checkpoint-every")
_OFTEN = (*_CHECKPOINT, "20")
_EVALUATES = (*_OFTEN, "--evaluate-every", "110", "--evaluate-seconds", "20")
HIT: Mapping[str, signal.Signals] = MappingProxyType(
    {
        "gil": signal.SIGUSR1,
        "loop": signal.SIGUSR2,
        "stop": signal.SIGSTOP,
        "dead": signal.SIGKILL,
    }
)
# Those of a script that takes the signal itself.
_WITH_THE_LOCK = ("gil", "loop")


@dataclass(frozen=True, slots=True)
class Script:
    """A script that knows nothing of Everstep."""

    # Also of the package without which it cannot run.
    name: str
    line: tuple[str, ...]
    # The same, where it holds the lock when a signal comes.
    hanging: tuple[str, ...]
    # A rank of it is hit after so many steps of 0.1 s.
    warm_steps: int


SCRIPTS = (
    # Sums by sockets, without a recorder of collectives. The launcher has learned by then how long
    # its ranks stand still as a rule.
    Script("numpy", ("plain.py",), (HANGING, "plain.py"), 250),
    # DistributedDataParallel over gloo. Two jobs have their standbys by then: on two cores each
    # imports torch for some 5 s, one after the other.
    Script("torch", ("plain_ddp.py",), ("hanging_ddp.py",), 600),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a script does, and what is done to one of its ranks; "": it pauses by itself."""

    name: str
    how: str
    arguments: tuple[str, ...]
    # The rank is hit after so many steps; where none is, the run ends then. 0: as its script says.
    steps: int = 0

    @property
    def new_step_s(self) -> float:
        """Return within which time the job should step again.

        A computation that keeps the lock may end: the product takes it for endless after 15 s.
        """
        return 25.0 if self.how == "loop" else 10.0


KINDS = (
    *(Kind(how, how, _OFTEN) for how in HIT),
    # Two evaluations of 20 s have ended by then, and the next one is far.
    *(Kind(f"{how}, after an evaluation", how, _EVALUATES, 240) for how in HIT),
    Kind("evaluation", "", _EVALUATES, 130),
    Kind("loader", "", (*_OFTEN, "--load-seconds", "20"), 60),
    Kind("save", "", (*_CHECKPOINT, "100", "--save-seconds", "20"), 130),
    Kind("packing", "", (*_CHECKPOINT, "100", "--pack-seconds", "20"), 130),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A script, and one of the kinds of hangs that it is run with."""

    script: Script
    kind: Kind

    @property
    def name(self) -> str:
        """Return the name of both."""
        return f"{self.script.name}, {self.kind.name}"

    @property
    def shape(self) -> Shape:
        """Return the job: two machines, two ranks on each, steps that are printed."""
        script = self.script
        name, *arguments = script.hanging if self.kind.how in _WITH_THE_LOCK else script.line
        return Shape(
            f"{script.name}-{self.kind.name.partition(',')[0]}",
            name,
            (*arguments, *self.kind.arguments),
            ranks_per_node=2,
            uses_torch=script.name == "torch",
            needs=script.name,
        )

    @property
    def steps(self) -> int:
        """Return after how many steps a rank is hit, or the run ends."""
        return self.kind.steps or self.script.warm_steps


def cases(scripts: Sequence[str] = (), only: Sequence[str] = ()) -> list[Case]:
    """Return each script with each kind: those of these names, or all."""
    return [
        Case(script, kind)
        for script in SCRIPTS
        if not scripts or script.name in scripts
        for kind in KINDS
        if not only or kind.name in only
    ]
