"""InfiniBand counter rules: which counters of a port show which fault, and how wide they are."""

from collections.abc import Mapping
from types import MappingProxyType

from everstep_agent.detectors.links.errors import ErrorRule
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.detectors.readings.counters import Register
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_NVSENTINEL = "NVSentinel's NIC monitor"
_NARROW = "InfiniBand architecture: a register of 4 bits for what must not happen"
_MINUTE_S, _HOUR_S = 60.0, 3600.0


def rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of the counters of a port, and of its hw_counters."""
    return (
        *_cable_rules(limits),
        *_damage_rules(limits),
        *_refusal_rules(limits),
        *_port_rules(limits),
        *_transport_rules(limits),
        *_path_rules(limits),
    )


def _cable_rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of the signal, which a cable or a transceiver spoils."""
    return (
        ErrorRule(
            condition="IbSymbolErrors",
            counters=("symbol_error",),
            limit=limits.symbol_errors_per_s,
            what="symbol errors: a cable or transceiver fails",
            source=_NVSENTINEL,
            mode=Mode.ADVISE,
        ),
        ErrorRule(
            condition="IbSymbolErrorsPerHour",
            counters=("symbol_error",),
            limit=limits.symbol_errors_per_hour,
            window_s=_HOUR_S,
            what="symbol errors above the bit error rate that the standard allows",
            source=f"InfiniBand architecture (a bit error rate of 1e-12), {_NVSENTINEL}",
            action=SuggestedAction.WATCH,
        ),
        ErrorRule(
            condition="IbLinkRecoveries",
            counters=("link_error_recovery",),
            limit=limits.link_recoveries_per_min,
            window_s=_MINUTE_S,
            what="the link keeps retraining",
            source=_NVSENTINEL,
            mode=Mode.ADVISE,
        ),
    )


def _damage_rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of packets that arrive damaged."""
    return (
        ErrorRule(
            condition="IbReceiveErrors",
            counters=("port_rcv_errors",),
            limit=limits.receive_errors_per_s,
            what="packets arrive damaged",
            source=_NVSENTINEL,
            mode=Mode.ADVISE,
        ),
        ErrorRule(
            condition="IbRemotePhysicalErrors",
            counters=("port_rcv_remote_physical_errors",),
            limit=limits.receive_errors_per_s,
            what="packets arrive that a switch on their way marked as damaged",
            source=f"{_NVSENTINEL}, as for damaged packets; it blames a link further away",
            severity=Severity.INFO,
            action=SuggestedAction.WATCH,
        ),
    )


def _refusal_rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of packets that are whole and go no further."""
    return (
        ErrorRule(
            condition="IbTransmitDiscards",
            counters=("port_xmit_discards",),
            limit=limits.discards_per_s,
            what="packets are discarded because the port is down or congested",
            source=_NVSENTINEL,
            action=SuggestedAction.WATCH,
        ),
        ErrorRule(
            condition="IbMisdirectedPackets",
            counters=(
                "port_xmit_constraint_errors",
                "port_rcv_constraint_errors",
                "port_rcv_switch_relay_errors",
                "VL15_dropped",
            ),
            limit=limits.misdirected_per_hour,
            window_s=_HOUR_S,
            what="packets are refused: partition keys, routing or management traffic are wrong",
            source="rdma-core, error_thresholds: 100",
            severity=Severity.INFO,
            action=SuggestedAction.WATCH,
        ),
    )


def _port_rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of registers that must not grow at all."""
    return (
        ErrorRule(
            condition="IbBufferOverrun",
            counters=("excessive_buffer_overrun_errors",),
            limit=1,
            window_s=limits.fatal_kept_s,
            what="the port's buffers overran: flow control failed",
            source=f"any growth; fatal for {_NVSENTINEL}. {_NARROW}",
            severity=Severity.FATAL,
            mode=Mode.ADVISE,
        ),
        ErrorRule(
            condition="IbLinkIntegrity",
            counters=("local_link_integrity_errors",),
            limit=1,
            window_s=limits.fatal_kept_s,
            what="the link's physical errors exceeded its limit",
            source=f"any growth; fatal for {_NVSENTINEL}. {_NARROW}",
            severity=Severity.FATAL,
            mode=Mode.ADVISE,
        ),
    )


def _transport_rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of the transport, whose other end may be at fault."""
    other_end = (
        "any growth; NVSentinel calls it fatal, but each survivor counts it when another node dies"
    )
    return (
        ErrorRule(
            condition="RdmaRetriesExceeded",
            counters=("req_transport_retries_exceeded", "req_rnr_retries_exceeded"),
            limit=1,
            window_s=limits.transport_kept_s,
            what="connections broke after all retries: this port, the way, or the other end",
            source=other_end,
            action=SuggestedAction.WATCH,
        ),
        ErrorRule(
            condition="RdmaReceiverNotReady",
            counters=("rnr_nak_retry_err",),
            limit=1,
            window_s=limits.transport_kept_s,
            what="receivers were not ready until the retries ended",
            source=other_end,
            action=SuggestedAction.WATCH,
        ),
    )


def _path_rules(limits: InfinibandLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of a path that fails, as RDMA sees it first."""
    return (
        ErrorRule(
            condition="RdmaAckTimeouts",
            counters=("local_ack_timeout_err",),
            limit=limits.ack_timeouts_per_s,
            what="acknowledgements do not arrive in time",
            source=f"{_NVSENTINEL}; the earliest sign of a dying path",
            action=SuggestedAction.WATCH,
            mode=Mode.ADVISE,
        ),
        ErrorRule(
            condition="RdmaSlowRestarts",
            counters=("roce_slow_restart",),
            limit=limits.slow_restarts_per_s,
            what="RoCE restarts slowly after losses",
            source=_NVSENTINEL,
            action=SuggestedAction.WATCH,
        ),
        ErrorRule(
            condition="RdmaIcrcErrors",
            counters=("rx_icrc_encapsulated",),
            limit=1,
            window_s=limits.transport_kept_s,
            what="RoCE packets arrive with a wrong invariant checksum: damaged behind the link",
            source="any growth",
        ),
    )


# Widths of the PortCounters attribute. Linux shows the registers as they are (core/sysfs.c); a
# value beyond its register is from an HCA or a kernel that counts in 64 bits.
REGISTERS: Mapping[str, Register] = MappingProxyType(
    {
        "symbol_error": Register(16),
        "link_error_recovery": Register(8),
        "link_downed": Register(8),
        "port_rcv_errors": Register(16),
        "port_rcv_remote_physical_errors": Register(16),
        "port_rcv_switch_relay_errors": Register(16),
        "port_xmit_discards": Register(16),
        "port_xmit_constraint_errors": Register(8),
        "port_rcv_constraint_errors": Register(8),
        "local_link_integrity_errors": Register(4),
        "excessive_buffer_overrun_errors": Register(4),
        "VL15_dropped": Register(16),
        # mlx5 counts these in 32 bits, which go on from zero.
        "req_transport_retries_exceeded": Register(32, wraps=True),
        "req_rnr_retries_exceeded": Register(32, wraps=True),
        "rnr_nak_retry_err": Register(32, wraps=True),
        "local_ack_timeout_err": Register(32, wraps=True),
        "roce_slow_restart": Register(32, wraps=True),
        "rx_icrc_encapsulated": Register(32, wraps=True),
    }
)
