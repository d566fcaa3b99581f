"""What is simulated runs with what ships: settings of the core, and defaults of agents and jobs."""

from dataclasses import fields

from everstep.launch.command_line.launch_parser import launch_parser
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.jobs.standing import stand_still
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_agent.suspicion import MISSES
from everstep_common.config import load
from everstep_common.judging.findings import Mode
from everstep_controller.core import events
from everstep_controller.core.model.settings import Settings
from everstep_sim import autonomy, fleet, node, ranks, stillness
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.timeline import SECOND

# Settings that operators are to choose: no default of them is right for a cluster that is to show
# what automation does.
CHOSEN = {"mode"}


def _nothing(cluster: SimulatedCluster, event: events.Event) -> None:
    pass


def test_a_simulated_controller_has_the_settings_that_ship_but_for_the_mode() -> None:
    simulated = SimulatedCluster(1, Shape(), _nothing).controller.settings
    shipped = Settings()
    differ = {
        one.name
        for one in fields(Settings)
        if getattr(simulated, one.name) != getattr(shipped, one.name)
    }
    assert differ == CHOSEN
    assert simulated.mode is Mode.ENFORCE
    assert simulated == SHIPPED


def test_simulated_agents_and_jobs_have_the_defaults_that_ship() -> None:
    jobs, agent = JobsSettings(), load(AgentConfig, None)
    options = launch_parser().parse_args([])
    assert jobs.slots_per_rank == node.SLOTS
    assert jobs.slot_wait_s == ranks.SLOT_WAIT_S
    assert jobs.controller_grace_s == autonomy.GRACE_S
    assert node.MISSES == MISSES
    assert int(stillness.STILL_S * SECOND) == stand_still.LEAST_NS
    assert fleet.RECONNECT_S[1] == agent.reconnect_backoff_max_s
    assert Shape().restarts_max == options.max_restarts
