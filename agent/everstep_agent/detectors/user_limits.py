"""User limit detector: users of the node whom the agent refuses again and again.

Only the operator sees it: what one user does says nothing bad of the node.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

LIMITED = "UserLimited"
NOT_AN_AGENT = "BulkPortMisused"
# Users who are named at once: any process may have thousands of user numbers of its own.
_NAMED_MAX = 16
# Connections to the bulk port from which on a user is named: fewer are somebody's look at ports.
_MISUSED_FROM = 20

CONDITIONS = (
    Condition(
        name=LIMITED,
        component="user/UID",
        meaning="the agent refuses this user's connections or jobs for minutes, because they are "
        "more than one user may have; other users are served as ever",
        source="ours: a refusal in every minute, for three minutes",
        clears_when="the user was not refused for a minute",
        raise_after=180,
        mode=Mode.OBSERVE,
    ),
    Condition(
        name=NOT_AN_AGENT,
        component="user/UID",
        meaning="this user of the node, who runs no agent, connects to the bulk port again and "
        "again; each connection is ended unheard, and snapshots travel as ever",
        source="ours: 20 connections, the newest within a minute",
        clears_when="the user did not connect for a minute",
        mode=Mode.OBSERVE,
    ),
)


def judge_limited(
    limited: Mapping[int, Mapping[str, int]], open_keys: Collection[FindingKey]
) -> Iterator[Judgement]:
    """Judge the users: how often each was refused by which key, of those refused a moment ago."""
    for user in list(limited)[:_NAMED_MAX]:
        yield Faulty(_finding(user, limited[user]))
    keys = {f"user/{user}" for user in limited}
    for key in open_keys:
        if key.condition == LIMITED and key.component not in keys:
            yield Healthy(key, "the user was not refused for a minute")


def judge_misused(
    refused: Mapping[int, int], names: Mapping[int, str], port: str, open_keys: Iterable[FindingKey]
) -> Iterator[Judgement]:
    """Judge who connects to the bulk port: how often each was refused, of those a moment ago."""
    named = [user for user, count in refused.items() if count >= _MISUSED_FROM][:_NAMED_MAX]
    for user in named:
        name = f" ({names[user]})" if names.get(user) else ""
        yield Faulty(
            Finding(
                component=f"user/{user}",
                condition=NOT_AN_AGENT,
                severity=Severity.INFO,
                message=f"user {user}{name} connects to the bulk port of this node's agent, which "
                "is for agents; each connection is ended unheard. As root, "
                f"'ss -tnp dport = :{port}' names the processes",
                evidence=f"refused since the agent began: {refused[user]} connections",
                suggested_action=SuggestedAction.WATCH,
                rule="self-observation of the agent",
            )
        )
    for key in open_keys:
        if key.condition == NOT_AN_AGENT and key.component not in {f"user/{one}" for one in named}:
            yield Healthy(key, "the user did not connect for a minute")


def _finding(user: int, refused: Mapping[str, int]) -> Finding:
    counts = ", ".join(f"{count} by {key}" for key, count in sorted(refused.items()))
    return Finding(
        component=f"user/{user}",
        condition=LIMITED,
        severity=Severity.INFO,
        message=f"user {user} asks more of the agent than one user may: raise "
        f"{' or '.join(sorted(refused))} if these are jobs, else look what the user runs",
        evidence=f"refused since the agent began: {counts}",
        suggested_action=SuggestedAction.WATCH,
        rule="self-observation of the agent",
    )
