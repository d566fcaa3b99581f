"""Board of the fleet: what it does now, and what somebody should look at."""

from boards.board import JOB_LINK, NODE_LINK, Board, Row
from boards.panels import Curves, Number, Query, Rows, States, Unit
from boards.states import coded, shown, words
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState

_NODES, _JOBS = shown(NodeState), shown(JobState)
_WAITS = "waiting_capacity|waiting_state|backing_off|stalled"

_NOW = (
    Number(
        title="Training time",
        text="Share of the last hour in which steps were made, over all jobs by their nodes "
        "(ETTR_time). The table of jobs says which ones lose time.",
        queries=[Query("everstep:fleet_ettr_time:ratio1h")],
        unit=Unit.RATIO,
        warn=0.99,
        bad=0.9,
        low=True,
        decimals=2,
    ),
    Number(
        title="Jobs that run",
        text="Jobs that make steps.",
        queries=[Query('sum(everstep_job_state{state="running"}) or vector(0)')],
    ),
    Number(
        title="Jobs that wait",
        text="For nodes, for their state or for the next attempt: 'everstep why JOB'.",
        queries=[Query(f'sum(everstep_job_state{{state=~"{_WAITS}"}}) or vector(0)')],
        warn=1,
    ),
    Number(
        title="Nodes withheld",
        text="By automation, people or a scheduler: 'everstep nodes'.",
        queries=[Query("count(count by (node) (everstep_node_claim)) or vector(0)")],
        warn=1,
    ),
    Number(
        title="Held back by a budget",
        text="Nodes that automation would isolate and may not: 'everstep findings'.",
        queries=[Query("everstep_controller_isolations_held_back")],
        warn=1,
        bad=5,
    ),
    Number(
        title="Findings of the controller",
        text="What the controller says of itself: 'everstep findings'.",
        queries=[Query("everstep_controller_findings")],
        warn=1,
    ),
)
_OF_NODES = (
    Curves(
        title="Nodes by state",
        text="A step of many nodes at once is a switch, a rack or a rollout.",
        queries=[Query("everstep_nodes", "{{state}}")],
        stacked=True,
    ),
    Curves(
        title="Nodes away and withheld",
        text="Agents that are away, those that are away together, and claims by their owner.",
        queries=[
            Query("count(everstep_node_connected == 0) or vector(0)", "agent is away"),
            Query("everstep_controller_agents_cut_off", "away together"),
            Query("count by (owner) (everstep_node_claim)", "claimed by {{owner}}"),
        ],
    ),
    States(
        title="Nodes that are not healthy",
        text="A bar for each node that is not healthy, 50 at most; none is good.",
        queries=[Query(f"topk(50, {coded('everstep_node_state', _NODES)})", "{{node}}")],
        words=words(_NODES),
        width=24,
        height=10,
    ),
    Rows(
        title="Nodes to look at",
        text="Nodes with open findings. The name leads to the node's board.",
        queries=[Query("everstep_node_findings > 0")],
        labels=[("node", "node")],
        values=["open findings"],
        link=NODE_LINK,
    ),
    Curves(
        title="Isolations",
        text="Working nodes isolated in the last hour, beside those that a budget holds back.",
        queries=[
            Query("everstep_controller_isolations_per_hour", "isolated in an hour"),
            Query("everstep_controller_isolations_held_back", "held back"),
        ],
    ),
)
_OF_JOBS = (
    States(
        title="Jobs",
        text="A bar for each job, 50 at most: what it did when.",
        queries=[Query(f"topk(50, {coded('everstep_job_state', _JOBS)})", "{{job}}")],
        words=words(_JOBS),
        width=24,
        height=10,
    ),
    Rows(
        title="Jobs that lose time",
        text="Jobs by the share of the last hour that was training, the worst first.",
        queries=[
            Query("sort(everstep:job_ettr_time:ratio1h)"),
            Query("everstep_job_nodes"),
            Query("everstep_job_recoverable_step_age_seconds"),
            Query("everstep_job_slow_ratio"),
            Query("everstep_job_failures_total"),
        ],
        labels=[("job", "job")],
        values=["training time, 1 h", "nodes", "age of recoverable step, s", "slow", "failures"],
        link=JOB_LINK,
        width=24,
    ),
)
_OF_SCHEDULERS = (
    Curves(
        title="Schedulers: how long they are behind",
        text="The oldest node that is not as it is wanted at a scheduler: 'everstep drivers'.",
        queries=[
            Query("everstep_driver_lag_seconds", "{{driver}}: oldest node waits"),
            Query("everstep_driver_reading_age_seconds", "{{driver}}: age of the reading"),
        ],
        unit=Unit.SECONDS,
    ),
    Curves(
        title="Schedulers: nodes and failures",
        text="Nodes that wait to be told, and calls that failed in five minutes.",
        queries=[
            Query("everstep_driver_waiting_nodes", "{{driver}}: nodes wait"),
            Query("increase(everstep_driver_failures_total[5m])", "{{driver}}: calls failed"),
            Query("everstep_drivers_paused", "paused by an operator"),
        ],
    ),
    Curves(
        title="Webhooks",
        text="Events sent in five minutes, and lines that wait: 'everstep webhooks'.",
        queries=[
            Query(
                "sum by (webhook, outcome) (increase(everstep_webhook_events_total[5m]))",
                "{{webhook}}: {{outcome}}",
            ),
            Query("everstep_webhook_lag_lines", "{{webhook}}: wait"),
        ],
    ),
    Curves(
        title="Age of evidence",
        text="How old what agents tell is, 99th percentile: old evidence starts no action.",
        queries=[
            Query(
                "histogram_quantile(0.99, sum by (kind, le) "
                "(rate(everstep_evidence_age_seconds_bucket[5m])))",
                "{{kind}}",
            )
        ],
        unit=Unit.SECONDS,
    ),
)
_OF_CONTROLLER = (
    Curves(
        title="Controller: events",
        text="Events taken a second, and those that could not be taken.",
        queries=[
            Query("rate(everstep_controller_events_total[5m])", "taken"),
            Query("rate(everstep_controller_events_rejected_total[5m])", "rejected"),
        ],
    ),
    Curves(
        title="Controller: starts, stalls, streams",
        text="The term grows with each start; a stall is a loop that stood still for a second.",
        queries=[
            Query("everstep_controller_term", "term"),
            Query("everstep_controller_stalls_total", "stalls since its start"),
            Query("everstep_controller_streams", "streams of agents"),
        ],
    ),
)

FLEET = Board(
    uid="everstep-fleet",
    title="Everstep: fleet",
    text="What the fleet does now, and what somebody should look at.",
    rows=(
        Row(headline="Now", panels=_NOW),
        Row(headline="Nodes", panels=_OF_NODES),
        Row(headline="Jobs", panels=_OF_JOBS),
        Row(headline="Schedulers and receivers", panels=_OF_SCHEDULERS),
        Row(headline="Controller", panels=_OF_CONTROLLER),
    ),
)
