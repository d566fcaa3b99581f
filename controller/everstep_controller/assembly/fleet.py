"""Assembly of the agents' side: their streams, what they report, and what follows their events."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everstep_controller.api.fleet.action_executor import EventFollower, SessionAcknowledger
from everstep_controller.api.fleet.agent_streams import AgentStreams, StreamCollaborators
from everstep_controller.api.fleet.node_questions import NodeQuestions
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.assembly.acting import Acting
from everstep_controller.assembly.foundation import Foundation, NamedTask
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.jobs.progress_rows import ProgressRows, reporters
from everstep_controller.judging.gpu_samples import GpuSamples
from everstep_controller.judging.link_errors import LinkErrors
from everstep_controller.records.intake import Intake
from everstep_controller.telemetry.kernel_messages import NewestKernelMessages
from everstep_controller.telemetry.rank_progress import RankProgressTable
from everstep_controller.telemetry.samples import SampleRing

if TYPE_CHECKING:
    from everstep_controller.api.fleet.stream_certificates import StreamCertificates


@dataclass(frozen=True, slots=True)
class Fleet:
    """The agents' side: streams and intake, and the newest of what is not journaled."""

    sessions: Sessions
    intake: Intake
    streams: AgentStreams
    questions: NodeQuestions
    samples: SampleRing
    gpus: GpuSamples
    links: LinkErrors
    ranks: RankProgressTable
    kernel: NewestKernelMessages
    # Ends streams whose certificates count no more; None without TLS.
    certificates: "StreamCertificates | None"

    def tasks(self) -> Iterator[NamedTask]:
        """Yield what runs as long as the controller does."""
        if self.certificates is not None:
            yield "stream certificates", self.certificates.run


def assemble_fleet(config: ControllerConfig, base: Foundation, acting: Acting) -> Fleet:
    """Return it; every event is followed from now on."""
    runtime, targets = base.runtime, acting.targets
    progress = ProgressRows(
        lambda job: reporters(base.fold.state, job), targets.vault.recoverable_step
    )
    certificates = _certificates(targets.sessions, config.tls.ca)
    parts = StreamCollaborators(
        runtime=runtime,
        sessions=targets.sessions,
        rolls=targets.rolls,
        intake=Intake(runtime, progress, SessionAcknowledger(targets.sessions), base.marks),
        vault=targets.vault,
        samples=SampleRing(config.samples_window),
        gpus=GpuSamples(),
        links=LinkErrors(),
        ranks=RankProgressTable(),
        kernel=NewestKernelMessages(),
        questions=NodeQuestions(targets.sessions),
        certificate_trouble=certificates.trouble if certificates else lambda _: "",
    )
    streams = AgentStreams(parts)

    def resume() -> None:
        """Do what is due, and hear every agent anew."""
        targets.timers.keep_only(base.state().timers)
        base.cluster.keep(base.state())
        runtime.act_on_what_is_due()
        streams.restart_streams("the controller acts again; connect anew")

    follower = EventFollower(base.state, targets, streams.tell_halt, resume, streams.peers_changed)
    runtime.listen(follower.follow)
    runtime.listen(streams.note_event)
    return Fleet(
        sessions=targets.sessions,
        intake=parts.intake,
        streams=streams,
        questions=parts.questions,
        samples=parts.samples,
        gpus=parts.gpus,
        links=parts.links,
        ranks=parts.ranks,
        kernel=parts.kernel,
        certificates=certificates,
    )


def _certificates(sessions: Sessions, authority: Path | None) -> "StreamCertificates | None":
    """Return what ends streams whose certificates count no more; None without TLS."""
    if authority is None:
        return None
    # What reads certificates takes 0.2 s to import, which a controller without TLS need not wait.
    from everstep_controller.api.fleet.stream_certificates import StreamCertificates

    return StreamCertificates(sessions, authority)
