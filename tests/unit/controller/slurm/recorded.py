"""What Slurm's programs printed, of three versions, and nodes in any state."""

from pathlib import Path

from everstep_controller.drivers.slurm.nodes import SlurmNode

RECORDED = Path(__file__).parents[3] / "fixtures" / "slurm"
VERSIONS = sorted(folder.name for folder in RECORDED.iterdir())
# What the fields were separated by when they were recorded.
SEPARATOR = "|5e9a7a70|"


def node(states: str, reason: str = "", comment: str = "", name: str = "n1") -> SlurmNode:
    """Return a node in these states."""
    return SlurmNode(
        name=name,
        host=f"{name}-host",
        address="10.0.0.1",
        states=frozenset(states.split("+")),
        shown_state=states,
        partitions=("gpu",),
        features="",
        comment=comment,
        extra="",
        reason=reason,
    )
