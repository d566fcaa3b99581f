"""Files of settings with mistakes in them, and what their reading says of these."""

from pathlib import Path

import pytest

from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import ConfigError, load


def mistakes_in(folder: Path, text: str) -> list[str]:
    """Return what the agent says of a file with this text, without the file's name."""
    file = folder / "agent.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(AgentConfig, file)
    return [problem.removeprefix(f"{file}: ") for problem in caught.value.problems]
