"""Report conversion: which report each message body in a Record on the agent's stream is.

The table follows from the names: the body's message is called as the report's class.
"""

import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from everstep_common import quantities as q
from everstep_common.bounds import MisfitError
from everstep_common.json_readers import reader_of
from everstep_common.reports import JOB_REPORTS, RankReport, Report
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import Envelope, WireError, decoder_of, enclosing_encoder_of

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
_ENVELOPE = Envelope(fleet_pb2.Record, (("job", "job"),), arguments=("job",))
_ENCODERS = {kind: enclosing_encoder_of(kind, name, _ENVELOPE) for name, kind in BODIES.items()}
_DECODERS = {
    name: decoder_of(kind, getattr(fleet_pb2, kind.__name__)) for name, kind in BODIES.items()
}
_job_name = reader_of(q.JobName)


def record_of(report: Report | RankReport, job: str = "") -> fleet_pb2.Record:
    """Return the record of a report; the outbox stamps and numbers it. Raises WireError."""
    record: fleet_pb2.Record = _ENCODERS[type(report)](report, job)
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


def job_of(record: fleet_pb2.Record) -> str:
    """Return the name of the job that a record is about. Raises WireError for what is none."""
    try:
        name: str = _job_name(record.job)
    except MisfitError as error:
        raise WireError(f"Record.job: {error}") from error
    return name


def is_job_name(text: str) -> bool:
    """Return whether a text is what a job may be called."""
    try:
        _job_name(text)
    except MisfitError:
        return False
    return True
