"""Order conversion: which order each message body in an Order on the agent's stream is.

The table follows from the names: the body's message is called as the order's class. What all orders
have stands beside the body: the id, and one sentence why.
"""

import typing
from dataclasses import fields
from types import MappingProxyType

from everstep_common.orders import NodeOrder, Order
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import Envelope, WireError, decoder_of, enclosing_encoder_of

_KINDS: tuple[type, ...] = typing.get_args(Order)
_BESIDE = tuple(field.name for field in fields(NodeOrder))
_NAMES = MappingProxyType(
    {
        field.message_type.name: field.name
        for field in fleet_pb2.Order.DESCRIPTOR.oneofs_by_name["body"].fields
        if field.message_type is not None
    }
)
_ENVELOPE = Envelope(
    fleet_pb2.Order,
    (("order_id", "_record.id"), ("term", "term"), ("reason", "_record.reason")),
    arguments=("term",),
)
_ENCODERS = {
    kind: enclosing_encoder_of(kind, _NAMES[kind.__name__], _ENVELOPE, _BESIDE) for kind in _KINDS
}
_DECODERS = {
    _NAMES[kind.__name__]: decoder_of(kind, getattr(fleet_pb2, kind.__name__), _BESIDE)
    for kind in _KINDS
}


def order_to_wire(order: Order, term: int) -> fleet_pb2.Order:
    """Return the message of an order, in the name of the controller of a term. Raises WireError."""
    message: fleet_pb2.Order = _ENCODERS[type(order)](order, term)
    return message


def order_from_wire(message: fleet_pb2.Order, node: str = "") -> Order:
    """Return the order in a message to a node. Raises WireError for one that cannot be used."""
    name = message.WhichOneof("body")
    decode = _DECODERS.get(name or "")
    if name is None or decode is None:
        raise WireError("it has no body that this version of the agent knows")
    order: Order = decode(getattr(message, name), message.order_id, node, message.reason)
    return order
