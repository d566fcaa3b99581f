"""Assembly of what the controller serves: the gRPC services of agents and people."""

from dataclasses import dataclass

import grpc

from everstep_controller.api.admin.admin_api import AdminApi
from everstep_controller.api.admin.controllers import OwnPart
from everstep_controller.api.admin.queries import AdminSources
from everstep_controller.api.admin.servicer import AdminServicer
from everstep_controller.api.fleet.node_certificates import revocation
from everstep_controller.api.fleet.servicer import FleetServicer
from everstep_controller.api.secret_guard import SecretGuard
from everstep_controller.api.server import Endpoint, make_server, make_services
from everstep_controller.assembly.acting import Acting
from everstep_controller.assembly.enrolment import Enrolment
from everstep_controller.assembly.fleet import Fleet
from everstep_controller.assembly.foundation import Foundation
from everstep_controller.assembly.watches import Watches
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.doors.doors import Doors, services_socket
from everstep_controller.doors.forwarding import ForwardedCallers
from everstep_controller.doors.messages import DoorSettings
from everstep_controller.runtime.controller_findings import ShellTrouble
from everstep_controller.telemetry.printed_steps import PrintedSteps
from everstep_controller.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class ServedRole:
    """Part of the controller that serves, and what keeps calls from it that are not for it."""

    own: OwnPart
    gates: tuple[grpc.aio.ServerInterceptor, ...] = ()


@dataclass(frozen=True, slots=True)
class Serving:
    """The server, which listens and is not started, and its guard."""

    server: grpc.aio.Server
    port: int
    # None where a folder or certificates keep others out.
    guard: SecretGuard | None
    # What accepts connections, where that is done in processes of their own.
    doors: Doors | None = None

    async def start(self) -> None:
        """Begin to serve. Raises ListenError."""
        await self.server.start()
        if self.doors is not None:
            await self.doors.start()

    async def stop(self, grace_s: float | None) -> None:
        """Serve no more."""
        if self.doors is not None:
            await self.doors.stop()
        await self.server.stop(grace_s)


def assemble_serving(
    config: ControllerConfig,
    base: Foundation,
    acting: Acting,
    fleet: Fleet,
    watches: Watches,
    webhooks: Webhooks,
    enrolment: Enrolment,
    role: ServedRole,
) -> Serving:
    """Return it. Raises ListenError."""
    sources = AdminSources(
        runtime=base.runtime,
        sessions=fleet.sessions,
        kernel=fleet.kernel,
        history=base.history,
        reads=base.reads,
        vault=acting.targets.vault,
        questions=fleet.questions,
        inspector=watches.inspector,
        slowness=watches.slow.finding,
        collectives=watches.looks.newest_look,
        trouble=lambda: ShellTrouble(
            base.journal.full,
            watches.failures.open_failures(),
            webhooks.failures(),
            watches.synchrony.lost() if watches.synchrony else None,
        ),
        printed=PrintedSteps(fleet.ranks, base.runtime.now_ns).of_job,
        webhooks=webhooks,
        readings=acting.targets.drivers.readings,
        failed_calls=lambda: acting.targets.drivers.failed_calls,
        samples=fleet.samples,
        price_per_device_hour=config.price_per_device_hour,
        own=role.own,
        token_issuer=enrolment.issuer,
    )
    endpoint = Endpoint(
        listen=config.listen,
        tls=config.tls,
        secret_file=config.secret_file,
        revoked=lambda name, serial, since_s: revocation(base.state(), name, serial, since_s),
        gates=role.gates,
    )
    guard, admin = endpoint.guard(), AdminServicer(AdminApi(sources))
    if role.own.is_active and config.stream_processes:
        return _behind_doors(config, endpoint, guard, fleet, admin, enrolment)
    server, port = make_server(endpoint, guard, FleetServicer(fleet.streams), admin)
    enrolment.agents.append(port)
    return Serving(server, port, guard)


def _behind_doors(
    config: ControllerConfig,
    endpoint: Endpoint,
    guard: SecretGuard | None,
    fleet: Fleet,
    admin: AdminServicer,
    enrolment: Enrolment,
) -> Serving:
    """Return the services behind processes that accept connections. Raises ListenError."""
    path = services_socket()
    settings = DoorSettings(
        listen=config.listen,
        services=str(path),
        secret_file=str(config.secret_file),
        ca=str(config.tls.ca or ""),
        certificate=str(config.tls.certificate or ""),
        key=str(config.tls.key or ""),
    )
    doors = Doors(config.stream_processes, settings, fleet.streams)
    port = doors.reserve()
    server = make_services(endpoint, ForwardedCallers(), admin, path)
    enrolment.agents.append(port)
    return Serving(server, port, guard, doors)
