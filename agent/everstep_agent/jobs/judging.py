"""What goes wrong around the jobs of a node, as judgements for the agent's findings."""

from collections.abc import Collection, Mapping

from everstep_agent.detectors.held import HELD, judge_held
from everstep_agent.detectors.jobs import SKIPPED
from everstep_agent.detectors.storing import FAILING, judge_storage
from everstep_agent.jobs.desk import Desk
from everstep_agent.jobs.job import NodeJob
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Healthy, Judgement


def judge_jobs(
    jobs: Mapping[str, NodeJob], desk: Desk, open_keys: Collection[FindingKey]
) -> list[Judgement]:
    """Judge what goes wrong around the snapshots; what is open of jobs that are gone ends."""
    gone: list[Judgement] = [
        Healthy(key, "the job is not on this node any more")
        for key in open_keys
        if key.condition in (SKIPPED, FAILING, HELD) and key.component.split("/")[1] not in jobs
    ]
    held = {name: job.processes.held() for name, job in jobs.items()}
    files = ((name, job.storage.files) for name, job in jobs.items())
    return [
        *gone,
        *judge_held(held, open_keys),
        *(judge_storage(name, one.trouble) for name, one in files if one.configured),
        *desk.site.refusals.judge(open_keys),
        *desk.skips.judge(desk.boot_ns()),
    ]
