"""Agent memory: notes that one agent leaves for the next, such as counters and Xids."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.kernel.gpu_faults.xid_history import XidHistory, XidSighting
from everstep_agent.detectors.readings.counters import Counters, CounterState
from everstep_common.codec import CodecError, from_json, json_text

logger = logging.getLogger(__name__)

# The counts that a crash may lose: a rate over the minutes around it is then too small, never too
# large.
KEEP_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Notes of the agent before this one, and where this one notes them for the next."""

    notes: Mapping[str, str]
    keep: Callable[[str, str], None]


def no_memory() -> Memory:
    """Return the memory of a command: it begins and ends with it."""
    return Memory({}, lambda _key, _value: None)


def load_counters(text: str) -> Counters:
    """Return what ``dump_counters`` wrote; none, and a log line, when it cannot be read."""
    try:
        return Counters(from_json(dict[str, CounterState], json.loads(text), "counters"))
    except (ValueError, CodecError) as error:
        logger.warning("the counters of the last agent cannot be read: %s", error)
        return Counters()


def dump_counters(counters: Counters) -> str:
    """Return the counters as text."""
    return json_text(counters.remembered(), dict[str, CounterState])


async def keep_counters(counters: Counters, keep: Callable[[str], None]) -> None:
    """Hand over the counters once a minute, until cancelled."""
    while True:
        await asyncio.sleep(KEEP_INTERVAL_S)
        keep(dump_counters(counters))


def load_xids(text: str) -> XidHistory:
    """Return what ``dump_xids`` wrote; none, and a log line, when it cannot be read."""
    try:
        return XidHistory(from_json(tuple[XidSighting, ...], json.loads(text), "xids"))
    except (ValueError, CodecError) as error:
        logger.warning("the Xids that the last agent saw cannot be read: %s", error)
        return XidHistory()


def dump_xids(sightings: Sequence[XidSighting]) -> str:
    """Return them as text."""
    return json_text(sightings, tuple[XidSighting, ...])
