"""A rank's surroundings for tests of the SDK: a small agent that a test can restart."""

from dataclasses import dataclass
from pathlib import Path

from integration.trainer_agent import TrainerAgent, Vault


@dataclass(slots=True)
class Node:
    """An agent that a test can restart, and the environment of a rank beside it."""

    path: Path
    vault: Vault
    agent: TrainerAgent

    @classmethod
    def begin(cls, folder: Path) -> "Node":
        """Start the agent of a job's first generation."""
        path, vault = folder / "agent.sock", Vault(generation=1)
        return cls(path, vault, TrainerAgent(path, vault))

    def environ(self, **more: str) -> dict[str, str]:
        """Return a rank's environment."""
        return {
            "EVERSTEP_SOCKET": str(self.path),
            "EVERSTEP_JOB": "test",
            "EVERSTEP_GENERATION": str(self.vault.generation),
            "EVERSTEP_TOKEN": self.vault.token,
            "RANK": "0",
            "WORLD_SIZE": "1",
        } | more

    def restart(self) -> None:
        """Kill the agent and start the next one, which knows what the vault knows."""
        self.agent.close()
        self.agent = TrainerAgent(self.path, self.vault)

    def heard(self, kind: type) -> list[object]:
        """Return what training processes have said of this type, since the last question."""
        messages = []
        while not self.agent.from_trainer.empty():
            messages.append(self.agent.from_trainer.get())
        return [message for message in messages if isinstance(message, kind)]

    def close(self) -> None:
        """End the agent, free the memory."""
        self.agent.close()
        self.vault.close()
