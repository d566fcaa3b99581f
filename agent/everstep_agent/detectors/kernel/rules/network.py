"""Network rules: kernel messages about interfaces that lose their link, stall, or have no room."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OVER = "no further message"
_KERNEL = "kernel message"
# IFNAMSIZ, include/uapi/linux/if.h: 15 characters and the end.
_INTERFACE = r"(?P<interface>[\w.@-]{1,15})"
# "mlx5_core 0000:5e:00.0 ens1: ", "bnxt_en 0000:3b:00.0 (unnamed net_device): ", or the name alone.
_OF = rf"(?:[\w-]{{1,24}} [\w:.-]{{0,31}}\w {_INTERFACE}: )"


def _condition(name: str, component: str, meaning: str, mode: Mode = Mode.ADVISE) -> Condition:
    return Condition(
        name=name,
        component=component,
        meaning=meaning,
        source=_KERNEL,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=mode,
    )


CONDITIONS = (
    _condition(
        "NicTransmitTimeout",
        "link/INTERFACE",
        "a network card did not send for seconds, and its driver resets it (NETDEV WATCHDOG)",
    ),
    Condition(
        name="NicLinkDown",
        component="link/INTERFACE",
        meaning="the driver of a network card, or a bond, says that a link went down",
        source="message of the driver; whether a link that is needed is down is read elsewhere",
        clears_when="the driver says that the link is up; or no further message",
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="NicCableUnplugged",
        component="link/PCI",
        meaning="the driver says that the cable or module of a port was taken out; in the first "
        "minutes of a boot it says so of every empty port",
        source="message of the mlx5 driver",
        clears_when="the driver says that it is plugged in; or no further message",
        quiet_ns=_QUIET_NS,
    ),
    _condition(
        "ConntrackFull",
        "host/network",
        "the table of connections of the firewall is full, and packets are dropped",
    ),
    _condition(
        "NeighbourTableFull",
        "host/network",
        "the table of neighbours (ARP) is full: new peers on the network cannot be reached",
    ),
    _condition("TcpMemoryShort", "host/network", "TCP has used the memory that tcp_mem allows it"),
)


def _stall(needle: str, pattern: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="NicTransmitTimeout",
        component="link/{interface}",
        message="network interface {interface} did not send for seconds; its driver resets it",
    )


def _link(needle: str, pattern: str, *, up: bool = False, of_bond: bool = False) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="NicLinkDown",
        component="link/{interface}",
        message="the link of {interface} went down",
        severity=Severity.INFO,
        ends=up,
        of_anybody=of_bond,
    )


def _bond(pattern: str, *, up: bool = False) -> LineRule:
    return _link("link status definitely", pattern, up=up, of_bond=True)


def _cable(needle: str, pattern: str, *, plugged: bool = False) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(rf"mlx[45]_core {PCI}.{{0,100}}?Port module event.{{0,40}}?{pattern}"),
        condition="NicCableUnplugged",
        component="link/{pci}",
        message="network card {pci}: a cable was unplugged",
        action=SuggestedAction.REPAIR_HARDWARE,
        usual_at_boot=True,
        ends=plugged,
    )


def _full(needle: str, pattern: str, condition: str, message: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=condition,
        component="host/network",
        message=message,
    )


# "NIC Link is Down", "Link is down", "Link down", "link down", "NIC Copper Link is Down",
# "carrier lost".
_DOWN = r"(?:(?:NIC |Port \d )?(?:Copper |Fibre )?[Ll]ink (?:is )?[Dd]own|carrier lost)\b"
_UP = r"(?:(?:NIC |Port \d )?(?:Copper |Fibre )?[Ll]ink (?:is )?[Uu]p|link becomes ready)\b"

# Older drivers write "e1000e: eth0 NIC Link is Down", "mlx4_en: eth0: Link Down".
_SHORT = r"(?:e1000e?|igbv?f?|ixgbe|mlx4_en|i40e|tg3|bnx2x?|be2net|sky2|r8169)"
# "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down" names both twice.
_DRIVER = r"[\w-]{1,24} [\w:.-]{0,31}\w [\w.@-]{1,15}: "
_NAMED = r"(?P<interface>(?:eth|en|ib|wl|bond)[\w.@-]{1,13})"

RULES = (
    # "NETDEV WATCHDOG: eth0 (ixgbe): transmit queue 3 timed out"; from 6.5 on behind the device:
    # "bnxt_en 0000:3b:00.0 eth0: NETDEV WATCHDOG: CPU: 3: transmit queue 3 timed out 5012 ms"
    _stall("NETDEV WATCHDOG", rf"NETDEV WATCHDOG: {_INTERFACE} \([^)]{{0,32}}\): transmit queue"),
    _stall("NETDEV WATCHDOG", rf"{_OF}NETDEV WATCHDOG: CPU: \d+: transmit queue"),
    _stall("NETDEV WATCHDOG", rf"(?:[\w-]{{1,24}}: )?{_INTERFACE}: NETDEV WATCHDOG: "),
    _stall(
        "imeout", rf"{_OF}(?:TX timeout|Tx timeout|tx_timeout|transmit timed out|Transmit timeout)"
    ),
    _stall("transmit timeout", rf"{_NAMED}: transmit timeout: latency"),
    _stall("imeout", rf"{_OF}initiating reset due to tx timeout"),
    _link("ink ", rf"{_OF}{_DOWN}"),
    _link("ink ", rf"{_OF}{_UP}", up=True),
    _link("ink ", rf"(?:{_DRIVER})?{_SHORT}: {_INTERFACE}:? {_DOWN}"),
    _link("ink ", rf"(?:{_DRIVER})?{_SHORT}: {_INTERFACE}:? {_UP}", up=True),
    _link("ink ", rf"{_NAMED}: {_DOWN}"),
    _link("ink ", rf"{_NAMED}: {_UP}(?:, \d+ ?[MG]bps)?", up=True),
    # In a network namespace of its own any user has bonds, with members of any name. Those of the
    # node are read from sysfs, too.
    _bond(rf"link status definitely down for interface {_INTERFACE},"),
    _bond(rf"\(slave {_INTERFACE}\): link status definitely down"),
    _bond(rf"link status definitely up for interface {_INTERFACE}", up=True),
    _bond(rf"\(slave {_INTERFACE}\): link status definitely up", up=True),
    _cable("able unplugged", r"[Cc]able unplugged"),
    _cable("able plugged", r"[Cc]able plugged", plugged=True),
    _full(
        "table full",
        r"(?:nf|ip)_conntrack: table full, dropping packet",
        "ConntrackFull",
        "the firewall's table of connections is full; packets are dropped",
    ),
    _full(
        "able overflow",
        r"(?:neighbor|[Nn]eighbour) table overflow",
        "NeighbourTableFull",
        "the table of neighbours (ARP) is full",
    ),
    _full(
        "out of memory -- consider",
        r"out of memory -- consider tuning tcp_mem",
        "TcpMemoryShort",
        "TCP has no memory left (tcp_mem)",
    ),
)
