"""Site of the field: the names, racks and addresses of its machines."""

from dataclasses import dataclass

CONTROL_HOST = "control.field"
# People work from a machine that no cut of the field reaches.
WORKSTATION_ADDRESS = "10.77.0.254"
PREFIX_BITS = 16
RACKS = ("rack-1", "rack-2")
USERS = ("alice", "bob")


@dataclass(frozen=True, slots=True)
class Place:
    """A machine's name, its rack, and its address."""

    name: str
    rack: str
    address: str


@dataclass(frozen=True, slots=True)
class Site:
    """All machines, and the one on which the controller is installed first."""

    places: tuple[Place, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the machines."""
        return tuple(place.name for place in self.places)

    @property
    def control(self) -> str:
        """Return the machine that the controller begins on."""
        return self.places[0].name

    @property
    def other_control(self) -> str:
        """Return the machine to which the controller may be moved: in another rack, if any."""
        away = [one for one in self.places if one.rack != self.places[0].rack]
        return (away or list(self.places))[-1].name

    def place(self, name: str) -> Place:
        """Return a machine by its name."""
        return next(one for one in self.places if one.name == name)

    def in_rack(self, rack: str) -> tuple[str, ...]:
        """Return the names of the machines in a rack."""
        return tuple(one.name for one in self.places if one.rack == rack)


def make_site(machines: int) -> Site:
    """Return a site of so many machines, in the racks by turns."""
    racks = [RACKS[number % len(RACKS)] for number in range(machines)]
    return Site(
        tuple(
            Place(f"m{number + 1}", rack, f"10.77.{RACKS.index(rack) + 1}.{number + 1}")
            for number, rack in enumerate(racks)
        )
    )
