"""Bonding probe: what the Linux bonding driver says of a bond and its slaves."""

from everstep_agent.detectors.links.bonds import BondReading, BondSlave
from everstep_agent.probes.sysfs_file import text_of

# Modes with one slave that carries the traffic; the others use all of them.
_ONE_ACTIVE = ("active-backup", "balance-tlb", "balance-alb")


def read_bond(net: str, name: str) -> BondReading:
    """Return a bond. ``net`` is the folder of all interfaces."""
    folder = f"{net}/{name}/bonding"
    # "802.3ad 4": the name and the number of the mode.
    mode = (text_of(f"{folder}/mode") or "").partition(" ")[0]
    active = text_of(f"{folder}/active_slave") if mode in _ONE_ACTIVE else None
    slaves = text_of(f"{folder}/slaves")
    return BondReading(
        name=name,
        mode=mode,
        slaves=None if slaves is None else tuple(_slave(net, one) for one in slaves.split()),
        active_slave=active,
        aggregator=(text_of(f"{folder}/ad_aggregator") or "") if mode == "802.3ad" else "",
    )


def _slave(net: str, name: str) -> BondSlave:
    if "/" in name:
        return BondSlave(name=name, up=None)
    folder = f"{net}/{name}"
    status = text_of(f"{folder}/bonding_slave/mii_status")
    return BondSlave(
        name=name,
        up=None if not status else status == "up",
        mtu=_number(text_of(f"{folder}/mtu")),
        speed_bits_per_s=_number(text_of(f"{folder}/speed")) * 1_000_000,
        aggregator=text_of(f"{folder}/bonding_slave/ad_aggregator_id") or "",
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else 0
