"""Settings that tests of the core choose instead of the shipped ones, each for its reason."""

from everstep_common.judging.findings import Mode
from everstep_controller.core.model.settings import Settings

# A job that makes no steps is neither shown as stalled nor restarted for it. For tests in which
# that takes longer than it may, and that are about something else.
STALLS_IGNORED = Settings(mode=Mode.ENFORCE, stall_timeout_ns=0, hang_patience_ns=0)
# Nodes that wait as spares are not checked.
SPARES_UNCHECKED = Settings(mode=Mode.ENFORCE, spare_check_interval_ns=0)
