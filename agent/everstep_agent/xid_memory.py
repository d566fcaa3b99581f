"""Xid memory: the Xids of this node, saved by one agent for the next and kept over reboots."""

import json
import logging
from collections.abc import Sequence

from everstep_agent.detectors.kernel.xid_history import XidHistory, XidSighting
from everstep_common.codec import CodecError, from_json, to_json

logger = logging.getLogger(__name__)


def load_xids(text: str) -> XidHistory:
    """Return what ``dump_xids`` wrote; none, and a log line, when it cannot be read."""
    try:
        return XidHistory(from_json(tuple[XidSighting, ...], json.loads(text), "xids"))
    except (ValueError, CodecError) as error:
        logger.warning("the Xids that the last agent saw cannot be read: %s", error)
        return XidHistory()


def dump_xids(sightings: Sequence[XidSighting]) -> str:
    """Return them as text."""
    return json.dumps([to_json(seen) for seen in sightings])
