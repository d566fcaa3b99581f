"""Report conversion: which report each message body in a Record on the agent's stream is.

The table follows from the names: the body's message is called as the report's class.
"""

import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from everstep_common.reports import JOB_REPORTS, RankReport, Report
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, body_encoder_of, decoder_of

_MESSAGES = MappingProxyType(
    {
        field.message_type.name: field
        for field in fleet_pb2.Record.DESCRIPTOR.oneofs_by_name["body"].fields
        if field.message_type is not None
    }
)
_REPORTS: tuple[type, ...] = typing.get_args(Report)
_OF_A_JOB = frozenset(JOB_REPORTS)


def bodies_of(kinds: Iterable[type]) -> Mapping[str, type]:
    """Return each report by the name of its body in a Record. Raises TypeError for one of none."""
    kinds = list(kinds)
    if missing := [kind.__name__ for kind in kinds if kind.__name__ not in _MESSAGES]:
        raise TypeError(
            f"no message in the body of Record is called {', '.join(missing)}; write it in "
            "proto/fleet.proto, and run `make proto`"
        )
    return MappingProxyType({_MESSAGES[kind.__name__].name: kind for kind in kinds})


# Each report, by the name of its body in a Record.
BODIES = bodies_of(_REPORTS)
_ENCODERS = {
    kind: (name, body_encoder_of(kind, getattr(fleet_pb2, kind.__name__)))
    for name, kind in BODIES.items()
}
_DECODERS = {
    name: decoder_of(kind, getattr(fleet_pb2, kind.__name__)) for name, kind in BODIES.items()
}
# Typed as Any: the constructor takes the body by keyword, whose name is known only at run time.
_record: Any = fleet_pb2.Record


def record_of(report: Report | RankReport, job: str = "") -> fleet_pb2.Record:
    """Return the record of a report; the outbox stamps and numbers it. Raises WireError."""
    name, encode = _ENCODERS[type(report)]
    record: fleet_pb2.Record = _record(job=job, **{name: encode(report)})
    return record


def report_of(record: fleet_pb2.Record) -> Report:
    """Return the report in a record. Raises WireError for one that cannot be used."""
    name = record.WhichOneof("body")
    decode = _DECODERS.get(name or "")
    if name is None or decode is None:
        raise WireError(f"record {record.sequence} has no body that this version knows")
    report: Report = decode(getattr(record, name))
    return report


def is_about_a_job(report: Report) -> bool:
    """Return whether the record of a report must name a job."""
    return type(report) in _OF_A_JOB
