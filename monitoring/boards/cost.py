"""Board for those who pay: what failures cost, how often they come, and what becomes better."""

from boards.board import Board, Row
from boards.panels import Bars, Curves, Number, Query, Unit

_DAY_S = 86_400
# Device-hours of a category in the time that is shown, by the nodes that each job has.
_HOURS = (
    "sum by (category) (sum_over_time(everstep:fleet_device_time:increase5m{{{}}}[$__range:5m]))"
    " / 3600"
)
_LOST = 'category=~"inc[.].*|lost[.].*"'
_NODE_DAYS = "sum_over_time(sum(everstep_job_nodes)[$__range:5m]) / 288"
_FAILURES = "sum(increase(everstep_job_failures_total[$__range]))"

_SENTENCES = (
    Number(
        title="Training time",
        text="Share of paid time in which steps were made, over all jobs by their nodes.",
        queries=[Query("avg_over_time(everstep:fleet_ettr_time:ratio1h[$__range])")],
        unit=Unit.RATIO,
        warn=0.99,
        bad=0.9,
        low=True,
        decimals=2,
        width=6,
    ),
    Number(
        title="Failures",
        text="Incidents that nobody planned.",
        queries=[Query(f"{_FAILURES} or vector(0)")],
        decimals=0,
        width=6,
    ),
    Number(
        title="Time between failures",
        text="Of a job: its time over its failures, all jobs together.",
        queries=[
            Query(
                f"sum_over_time(count(everstep_job_state)[$__range:5m]) * 300 / ({_FAILURES} > 0)"
            )
        ],
        unit=Unit.SECONDS,
        width=6,
    ),
    Number(
        title="Failures per 1,000 node-days",
        text="Unplanned ones. The 419 in 54 days of Llama 3 on 2,048 nodes are 3.8.",
        queries=[Query(f"1000 * {_FAILURES} / ({_NODE_DAYS} > 0)")],
        decimals=1,
        width=6,
    ),
    Number(
        title="Lost to failures",
        text="Node-hours from each fault to the first new step after it.",
        queries=[Query(f"sum({_HOURS.format(_LOST)}) or vector(0)")],
        decimals=1,
        width=6,
    ),
    Number(
        title="Cost of failures",
        text="The same at the price of a node-hour that is set above.",
        queries=[Query(f"(sum({_HOURS.format(_LOST)}) or vector(0)) * $price")],
        decimals=0,
        width=6,
    ),
    Number(
        title="Lost to slow steps",
        text="Node-hours that steps took beyond their usual time.",
        queries=[Query("sum(" + _HOURS.format('category=~"slow[.].*"') + ") or vector(0)")],
        decimals=1,
        width=6,
    ),
    Number(
        title="Nodes withheld",
        text="Share of all nodes that took no ranks, on average.",
        queries=[
            Query(
                "avg_over_time(((count(count by (node) (everstep_node_claim)) or vector(0))"
                " / count(everstep_node_connected))[$__range:5m])"
            )
        ],
        unit=Unit.RATIO,
        decimals=2,
        width=6,
    ),
)
_TRENDS = (
    Curves(
        title="Training time",
        text="ETTR_time of the whole fleet, hour by hour.",
        queries=[Query("everstep:fleet_ettr_time:ratio1h", "all jobs")],
        unit=Unit.RATIO,
        width=24,
    ),
    Bars(
        title="Node-hours by what they went to",
        text="Everything but training; the words are those of 'everstep ettr'.",
        queries=[
            Query("sort_desc(" + _HOURS.format('category!="productive"') + ")", "{{category}}")
        ],
    ),
    Bars(
        title="Node-hours by cause",
        text="What incidents cost, planned work among them; 'process': a rank died of itself.",
        queries=[
            Query(
                "sort_desc(sum by (cause)"
                " (sum_over_time(everstep:fleet_incident_cost:increase5m[$__range:5m])) / 3600)",
                "{{cause}}",
            )
        ],
    ),
    Bars(
        title="Failures by job",
        text="Jobs with the most failures in the time that is shown.",
        queries=[
            Query(
                "sort_desc(topk(15, increase(everstep_job_failures_total[$__range]) > 0))",
                "{{job}}",
            )
        ],
    ),
)

COST = Board(
    uid="everstep-cost",
    title="Everstep: cost of failures",
    text="What failures cost, how often they come, and what becomes better.",
    constants=(("price", "Price of a node-hour", "1"),),
    rows=(
        Row(headline="In the time that is shown", panels=_SENTENCES),
        Row(headline="Where it went", panels=_TRENDS),
    ),
    since="now-30d",
)
