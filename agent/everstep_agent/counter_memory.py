"""Counter memory: the last counts of the node's hardware, saved by one agent for the next."""

import asyncio
import json
import logging
from collections.abc import Callable

from everstep_agent.detectors.readings.counters import Counters, CounterState
from everstep_common.codec import CodecError, from_json, to_json

logger = logging.getLogger(__name__)

# The counts that a crash may lose: a rate over the minutes around it is then too small, never too
# large.
KEEP_INTERVAL_S = 60.0


def load_counters(text: str) -> Counters:
    """Return what ``dump_counters`` wrote; none, and a log line, when it cannot be read."""
    try:
        return Counters(from_json(dict[str, CounterState], json.loads(text), "counters"))
    except (ValueError, CodecError) as error:
        logger.warning("the counters of the last agent cannot be read: %s", error)
        return Counters()


def dump_counters(counters: Counters) -> str:
    """Return the counters as text."""
    return json.dumps({name: to_json(state) for name, state in counters.remembered().items()})


async def keep_counters(counters: Counters, keep: Callable[[str], None]) -> None:
    """Hand over the counters once a minute, until cancelled."""
    while True:
        await asyncio.sleep(KEEP_INTERVAL_S)
        keep(dump_counters(counters))
