"""Schedule of the field: drawn from the seed alone, about a fault in 20 s, each with its blow."""

from field.faults.blows import BLOWS
from field.faults.catalogue import CATALOGUE
from field.faults.daemons import page_commands
from field.faults.schedule import FIRST_S, MEAN_GAP_S, plan
from field.jobs.shapes import SHAPES
from field.machines.image import REPOSITORY, installation
from field.machines.site import make_site


def test_a_seed_is_a_schedule() -> None:
    assert plan(7, 600.0, 6) == plan(7, 600.0, 6)
    assert plan(7, 600.0, 6) != plan(8, 600.0, 6)


def test_faults_come_about_every_20_s_and_the_whole_catalogue_in_an_hour() -> None:
    planned = plan(7, 3600.0, 6)
    assert abs(len(planned) - (3600.0 - FIRST_S) / MEAN_GAP_S) < 20
    named = {one.kind.name for seed in range(3) for one in plan(seed, 3600.0, 6)}
    assert named == {kind.name for kind in CATALOGUE}


def test_a_small_fleet_is_spared_what_would_leave_nobody() -> None:
    assert all(one.kind.machines <= 2 for one in plan(7, 3600.0, 2))


def test_only_the_kinds_that_are_named_come() -> None:
    assert {one.kind.name for one in plan(7, 600.0, 6, ["rank-killed"])} == {"rank-killed"}


def test_every_fault_has_its_blow_and_every_blow_its_fault() -> None:
    assert {kind.blow for kind in CATALOGUE} == set(BLOWS)


def test_what_people_have_to_be_told_is_what_the_product_says() -> None:
    tops = (REPOSITORY / name for name in ("common", "controller"))
    sources = "".join(path.read_text() for top in tops for path in top.rglob("*.py"))
    shapes = {shape.name for shape in SHAPES}
    for kind in CATALOGUE:
        if kind.verdict is not None:
            state = kind.verdict.reason.removeprefix("Job").upper()
            assert f'"{kind.verdict.reason}"' in sources or f"JobState.{state}" in sources
            assert kind.verdict.words in sources
            assert kind.verdict.shape in {"", *shapes}
            assert kind.seconds[0] > kind.verdict.within_s


def test_six_machines_are_in_two_racks_and_a_controller_can_move_to_the_other() -> None:
    site = make_site(6)
    assert [len(site.in_rack(rack)) for rack in ("rack-1", "rack-2")] == [3, 3]
    assert site.place(site.control).rack != site.place(site.other_control).rack
    assert len({one.address for one in site.places}) == 6


def test_the_controller_is_moved_and_backed_up_by_the_commands_of_the_pages() -> None:
    docs = REPOSITORY / "docs"
    (packs,) = page_commands(docs / "moving-the-controller.md", "1. On the old machine")
    assert "everstep-controller backup moved.sqlite" in packs
    unpacks, starts = page_commands(docs / "moving-the-controller.md", "3. On the new machine")
    assert "|| rmdir /var/lib/everstep-controller\n" in unpacks.partition("umask")[0]
    # The field starts it itself, at the new machine's address.
    assert "install" in unpacks
    assert "systemctl" not in unpacks
    assert starts.startswith("systemctl enable --now everstep-controller\n")
    heading = "Backing up and moving the controller"
    backs_up, puts_back = page_commands(docs / "operations.md", heading)
    assert "everstep-controller backup /var/backups/everstep/journal.sqlite" in backs_up
    places, recovers, _ = puts_back.partition("runuser")
    assert recovers
    assert places.startswith("systemctl stop everstep-controller\n")
    assert "install -o everstep-controller" in places


def test_machines_are_installed_by_the_commands_of_the_page() -> None:
    page = (REPOSITORY / "docs/installing.md").read_text()
    daemons = dict(installation(page, "/opt/a.whl"))
    assert "pip install '/opt/a.whl[agent]'" in daemons["agent"]
    assert "systemctl enable everstep-agent" in daemons["agent"]
    assert "pip install '/opt/a.whl[controller,cli]'" in daemons["controller"]
    assert "/etc/systemd/system/" in daemons["controller"]
    assert "agent" not in daemons["controller"]
