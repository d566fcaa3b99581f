"""What each category of the ledger means, in a few words."""

MEANINGS = {
    "init.queue": "waiting for the first nodes",
    "init.env": "first start: nodes bound, processes not running yet",
    "init.proc": "first start: processes start and import",
    "init.restore": "first start: loading a state",
    "init.warmup": "first start: until the first step",
    "productive": "committed steps, up to the reference step time",
    "slow.straggler": "excess of committed steps: one rank was slow",
    "slow.network": "excess of committed steps: the network was slow",
    "slow.data": "excess of committed steps: data came late",
    "slow.thermal": "excess of committed steps: throttled",
    "slow.unattributed": "excess of committed steps, cause unknown",
    "gap": "between two steps",
    "ckpt.stall.memory": "training stood still for a snapshot",
    "ckpt.stall.persist": "training stood still for a write to disk",
    "eval": "evaluation, as the job said",
    "planned": "planned work, as the operator said",
    "user_pause": "paused by its user",
    "inc.detect": "fault began, nobody knew yet",
    "inc.diagnose": "known, not decided yet",
    "inc.drain": "decided, old processes still ending",
    "inc.capacity": "no node was free",
    "inc.schedule": "nodes free, not all bound yet",
    "inc.env": "bound, processes not running yet",
    "inc.init": "processes start and import",
    "inc.restore": "state on its way back",
    "inc.warmup": "restored, until the first step",
    "lost.inflight": "the step that the fault cut off",
    "lost.recompute": "steps that had to be done again",
    "lost.corrupt": "steps thrown away as corrupt",
    "inflight": "the step that is being made now",
    "degraded": "steps made by fewer nodes than wanted",
    "unknown": "nobody could tell",
}


def meaning(name: str) -> str:
    """Return what a category means; a name from a newer controller has no words here yet."""
    return MEANINGS.get(name, "")
