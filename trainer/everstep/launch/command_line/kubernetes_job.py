"""Kubernetes job: size and name of a job, as those who make its pods tell them in variables.

Kubeflow's operators set what torchrun reads (PET_…), an indexed Job only a pod's index.
Which rank is where is in the controller's plan, so nobody's index or rank is taken from here.
"""

import re
from collections.abc import Mapping

# A pod of an indexed Job, and so of a JobSet and a TrainJob.
_INDEX = "JOB_COMPLETION_INDEX"
# "llm-node-0-0.llm" of a TrainJob, "llm-master-0" and "llm-worker-0:29400" of a PyTorchJob.
_TRAIN_JOB = re.compile(r"(?P<job>[a-z0-9-]+)-node-0-0\.(?P=job)(?:\..*)?")
_PYTORCH_JOB = re.compile(r"(?P<job>[a-z0-9.-]+)-(?:master|worker)-0(?:[.:].*)?")
_ADDRESSES = ("PET_MASTER_ADDR", "MASTER_ADDR", "PET_RDZV_ENDPOINT")


def kubernetes_job(environ: Mapping[str, str]) -> str:
    """Return the name of the job whose pod this is; "" where nobody has told it.

    >>> kubernetes_job({"PET_MASTER_ADDR": "llm-node-0-0.llm"})
    'llm'
    >>> kubernetes_job({"MASTER_ADDR": "llm-master-0", "KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    'llm'
    """
    if told := environ.get("JOBSET_NAME"):
        return told
    for address in (environ.get(name, "") for name in _ADDRESSES):
        if matched := _TRAIN_JOB.fullmatch(address):
            return matched["job"]
        if "KUBERNETES_SERVICE_HOST" in environ and (matched := _PYTORCH_JOB.fullmatch(address)):
            return matched["job"]
    return ""


def kubernetes_nodes(environ: Mapping[str, str]) -> str:
    """Return how many pods a PyTorchJob without PET_NNODES has; "" where that is not told.

    WORLD_SIZE counts pods in its older versions, and ranks in those that say how many a pod has.
    """
    told = environ.get("WORLD_SIZE", ""), environ.get("PET_NPROC_PER_NODE", "1")
    if "KUBERNETES_SERVICE_HOST" not in environ or not kubernetes_job(environ):
        return ""
    if "RANK" not in environ or not all(one.isascii() and one.isdigit() for one in told):
        return ""
    pods, rest = divmod(int(told[0]), max(1, int(told[1])))
    return "" if rest or not pods else str(pods)


def unknown_size(environ: Mapping[str, str]) -> str:
    """Return why a pod cannot know how many there are, with what to type; "" where it is alone."""
    index = environ.get(_INDEX)
    if index is None:
        return ""
    return (
        f"this is pod {index} of an indexed Job, and Kubernetes tells no pod how many there are: "
        "give --nnodes, or the variable PET_NNODES, the number that trains (parallelism without "
        "the spares)"
    )
