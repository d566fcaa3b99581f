"""Shapes of the field's jobs, as data: what scripts people put under a launcher."""

from dataclasses import dataclass
from enum import Enum


class Promise(Enum):
    """What Everstep promises of a job's losses."""

    # Equal to the bit to a run without faults.
    EQUAL = "equal"
    # The job ends; its own checkpoints decide what it repeats.
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class Shape:
    """A script, its options, and how many processes of it run where."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    # Of `everstep run`, beside the names and numbers.
    options: tuple[str, ...] = ()
    nodes: int = 2
    ranks_per_node: int = 1
    uses_torch: bool = False
    # A package without which it cannot run.
    needs: str = "numpy"
    promise: Promise = Promise.EQUAL
    # Each restore notes what it was given.
    proves_restores: bool = False
    # How much longer than its steps it lasts without any fault.
    pauses_s: float = 0.0
    # How many times the steps of other jobs it makes.
    longer: int = 1

    @property
    def own_checkpoints(self) -> bool:
        """Return whether it goes back to checkpoints that it writes itself."""
        return "--checkpoint" in self.arguments

    @property
    def checkpoint_steps(self) -> int:
        """Return how many steps lie between two of its own checkpoints; 0 where it has none."""
        if "--checkpoint-every" in self.arguments:
            return int(self.arguments[self.arguments.index("--checkpoint-every") + 1])
        return _EPOCH_STEPS if self.own_checkpoints else 0

    @property
    def torch_ranks(self) -> int:
        """Return how many processes with torch it has."""
        return self.nodes * self.ranks_per_node if self.uses_torch else 0

    @property
    def can_hold_lock(self) -> bool:
        """Return whether its ranks hold the interpreter's lock when they are told to."""
        return self.script in (HANGING, _HANGING_DDP)


# Of a script that checkpoints after each epoch (epochs.py).
_EPOCH_STEPS = 25
_CHECKPOINT = ("--checkpoint", "{out}/checkpoint.npz", "--checkpoint-every", "20")
_PLAIN = "plain.py"
# Run another script, and hold the interpreter's lock when they are told to.
HANGING, _HANGING_DDP = "hanging.py", "hanging_ddp.py"

SHAPES = (
    Shape("printed-steps", HANGING, (_PLAIN, *_CHECKPOINT, "--tell", "steps")),
    Shape(
        *("sdk", "sdk_numpy.py"), ("--restores", "{out}/restores"),
        nodes=3, ranks_per_node=4, proves_restores=True,
    ),
    Shape("progress-bar", HANGING, (_PLAIN, *_CHECKPOINT, "--tell", "bar")),
    Shape(
        *("sdk-overlap", "sdk_numpy.py"), ("--restores", "{out}/restores", "--overlap"),
        ranks_per_node=6, proves_restores=True,
    ),
    Shape(
        *("evaluation", HANGING),
        (_PLAIN, *_CHECKPOINT, "--evaluate-every", "100", "--evaluate-seconds", "12"),
        pauses_s=36.0,
    ),
    Shape(
        *("sdk-stored", "sdk_numpy.py"), ("--restores", "{out}/restores"),
        ("--persist", "/shared/{user}/steps", "--persist-seconds", "5"),
        nodes=4, ranks_per_node=3, proves_restores=True,
    ),
    Shape(
        # Storage is slow, and everybody waits while rank 0 saves.
        *("slow-save", HANGING),
        (_PLAIN, *_CHECKPOINT[:-1], "50", "--save-seconds", "6", "--tell", "steps"),
        pauses_s=36.0,
    ),
    Shape(
        # So long that an agent may stay away for minutes under it.
        *("sdk-long", "sdk_numpy.py"), ("--restores", "{out}/restores"),
        ("--persist", "/shared/{user}/steps", "--persist-seconds", "5"),
        ranks_per_node=3, proves_restores=True, longer=3,
    ),
    Shape(
        *("samples", HANGING),
        (_PLAIN, *_CHECKPOINT, "--tell", "steps", "--samples", "/dataset/samples"),
        ranks_per_node=2,
    ),
    Shape("silent", _PLAIN, (*_CHECKPOINT, "--tell", "nothing")),
    Shape(
        *("accumulation", _PLAIN),
        (*_CHECKPOINT, "--accumulate", "4", "--load-seconds", "6"),
        pauses_s=30.0,
    ),
    Shape("ddp", "train_ddp.py", uses_torch=True, needs="torch"),
    Shape(
        *("ddp-unchanged", _HANGING_DDP), (*_CHECKPOINT, "--tell", "steps"),
        uses_torch=True, needs="torch",
    ),
    Shape("fsdp2", "train_fsdp.py", uses_torch=True, needs="torch"),
    Shape(
        *("epochs", "epochs.py"), ("--checkpoint", "{out}/checkpoint.pt"),
        uses_torch=True, needs="torch",
    ),
    Shape("lightning", "train_lightning.py", uses_torch=True, needs="lightning"),
    Shape(
        *("transformers", "train_transformers.py"), nodes=1, ranks_per_node=2,
        uses_torch=True, needs="transformers",
    ),
)  # fmt: skip
