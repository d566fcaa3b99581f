"""Rank exits: what follows from how a rank's process ended. Pure."""

from everstep_common.failures.classification import ENDED_ITSELF, FOLLOWING, Side, side
from everstep_common.failures.texts import unvarying
from everstep_common.printable import quoted
from everstep_common.reports import RankExited


def explains(exit: RankExited) -> bool:
    """Return whether it can be why others died; a broken collective is only what follows.

    So is one that timed out: who exits first of those that waited is not who held them back.
    """
    return side(exit.kind) not in FOLLOWING


def waited_in_vain(exit: RankExited) -> bool:
    """Return whether it is evidence of a hang: the rank gave up waiting for others."""
    return side(exit.kind) is Side.WAITED


def got_unfit_data(exit: RankExited) -> bool:
    """Return whether it is evidence of a program at fault: another rank called something else."""
    return side(exit.kind) is Side.UNFIT


def signature_of(exit: RankExited) -> str:
    """Return what is equal in two exits of the same cause."""
    how = unvarying(exit.kind, exit.exception)
    return f"{exit.kind}: {how or f'exit {exit.exit_code}, signal {exit.signal}'}"


def ended_before_any_step(exit: RankExited) -> bool:
    """Return whether the script ended itself before its first step, which no node makes it do."""
    return exit.kind == ENDED_ITSELF and exit.step is None


def sentence_of(exit: RankExited, node: str = "") -> str:
    """Return what happened, in words."""
    how = f"was killed by signal {exit.signal}" if exit.signal else f"exited {exit.exit_code}"
    said = exit.exception or exit.last_line
    told = [quoted(said)] if said else []
    told += ["core dumped"] if exit.core_dumped else []
    where = f" on {node}" if node else ""
    return f"rank {exit.rank}{where} {how}" + (f" ({', '.join(told)})" if told else "")
