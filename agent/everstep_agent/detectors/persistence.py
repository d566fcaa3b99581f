"""Persistence detector: jobs whose steps do not reach the folder or bucket meant to store them."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Mode
from everstep_common.judging.judgement import Judgement

FAILING = "StorageFailing"

CONDITIONS = (
    Condition(
        name=FAILING,
        component="job/NAME/storage",
        meaning="the job's steps cannot be stored in its folder or bucket (--persist)",
        source="ours: the last attempt of a rank failed, for ten polls; one that fails is made "
        "again sooner",
        clears_when="each rank's file was stored, or this node has none to store any more: the job "
        "is over, or goes on without it",
        raise_after=10,
        mode=Mode.ADVISE,
    ),
)

_FAULT = Fault(
    message="the job's steps do not reach its storage: they are only in memory; its user mends "
    "the folder or bucket, and no other job is concerned",
    rule="the last attempt to write to the job's storage failed",
)


def storage_component(job: str) -> str:
    """Return what the storage of a job is called."""
    return f"job/{job}/storage"


def judge_storage(job: str, trouble: str) -> Judgement:
    """Judge the last attempt; ``trouble`` is empty when it did not fail."""
    evidence = trouble[:300] or "the last attempt did not fail"
    return judged(storage_component(job), FAILING, evidence, _FAULT if trouble else None)
