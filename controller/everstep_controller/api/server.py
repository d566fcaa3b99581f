"""gRPC server of the controller: agents' streams and the command line on one port."""

import grpc

from everstep_controller.api.admin.servicer import AdminServicer
from everstep_controller.api.fleet.servicer import FleetServicer
from everstep_controller.api.request_parsing import RequestParsing
from everstep_proto.generated import admin_pb2_grpc, fleet_pb2
from everstep_proto.keepalive import keepalive
from everstep_proto.tls import TlsSettings, server_credentials

# Measured with 12,500 streams: the bandwidth probe costs 43 % CPU at 1 Hz streams, and with default
# limits a ramp of agents that all come at once is refused in part.
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # The stream of an agent that is stopped, or whose machine vanished, ends within 15 s. Samples
    # come every 5 s, so that no such ping is needed while all is well.
    *keepalive(idle_s=7.0, timeout_s=5.0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)
_FLEET = "everstep.fleet.v1.Fleet"


class ListenError(Exception):
    """The address cannot be listened on."""


def make_server(
    listen: str, tls: TlsSettings, fleet: FleetServicer, admin: AdminServicer
) -> tuple[grpc.aio.Server, int]:
    """Return a server that is not started, and its port. Raises ListenError."""
    server = grpc.aio.server(interceptors=[RequestParsing()], options=SERVER_OPTIONS)
    # Requests stay bytes here, so that the servicer answers what is no message with a sentence.
    connect: grpc.RpcMethodHandler[bytes, fleet_pb2.ControllerMessage] = (
        grpc.stream_stream_rpc_method_handler(
            fleet.connect, response_serializer=fleet_pb2.ControllerMessage.SerializeToString
        )
    )
    handlers = grpc.method_handlers_generic_handler(_FLEET, {"Connect": connect})
    server.add_generic_rpc_handlers((handlers,))
    admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
    try:
        if tls.enabled:
            port = server.add_secure_port(listen, server_credentials(tls))
        else:
            port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise ListenError(
            f"listen: {listen} cannot be listened on; is it an address of this machine, and does "
            "nothing else use the port? 'ss -ltnp' shows who does"
        ) from error
    return server, port
