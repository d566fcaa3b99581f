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
from everstep_controller.api.server import Endpoint, make_server
from everstep_controller.assembly.acting import Acting
from everstep_controller.assembly.enrolment import Enrolment
from everstep_controller.assembly.fleet import Fleet
from everstep_controller.assembly.foundation import Foundation
from everstep_controller.assembly.watches import Watches
from everstep_controller.config.controller_config import ControllerConfig
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
    guard = endpoint.guard()
    server, port = make_server(
        endpoint, guard, FleetServicer(fleet.streams), AdminServicer(AdminApi(sources))
    )
    enrolment.agents.append(port)
    return Serving(server, port, guard)
