"""Hang notices: who started a job reads on its terminal that it stands still, and why.

They are told to the launcher beside rank 0, whose output people watch. Nobody answers them: an
agent that is away, or of a version that does not know them, leaves its user with `everstep why`.
"""

from everstep_common.orders import TellLauncher
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core.actions import Announce
from everstep_controller.core.model.job import JobRecord
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

# What is announced of a job and concerns its user at this moment.
_TOLD = frozenset({"JobStalled", "HangJudged", "HangPlanned"})
# Who did not come, of a generation that is over: the job may run again when that is known.
_PAST = "TimeoutJudged"
_RUNS = "JobRunning"
_PASSED_ON = _TOLD | {_PAST, _RUNS}


class HangNotices:
    """Tells launchers what is found out about a hang of their job, and that it is over."""

    def __init__(self, runtime: Runtime, sessions: Sessions) -> None:
        self._runtime = runtime
        self._sessions = sessions
        # Jobs of which a stall was told, and not yet its end.
        self._stalled: set[str] = set()

    def note_event(self, taken: TakenEvent) -> None:
        """Pass on what is announced of a hang."""
        for action in taken.actions:
            if isinstance(action, Announce) and action.reason in _PASSED_ON:
                self._note(action)

    def _note(self, said: Announce) -> None:
        job = self._runtime.state.job(said.subject)
        if job is None:
            return
        if said.reason in _TOLD:
            self._stalled = {one for one in self._stalled if one in self._runtime.state.jobs}
            self._stalled.add(job.id)
            # In which functions ranks are is not for everybody who reads the message.
            judged = said.reason == "HangJudged"
            where = f"; where each rank is: everstep job {job.name} stacks" if judged else ""
            self._tell(job, f"{said.message}{where}")
        elif said.reason == _PAST:
            self._tell(job, said.message)
        elif job.id in self._stalled:
            self._stalled.discard(job.id)
            self._tell(job, said.message)

    def _tell(self, job: JobRecord, sentence: str) -> None:
        for node in job.generation.members[:1]:
            wire = to_wire(TellLauncher(job.name, job.id, sentence), fleet_pb2.TellLauncher)
            self._sessions.send(node, fleet_pb2.ControllerMessage(tell_launcher=wire))
