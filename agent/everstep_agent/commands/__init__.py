"""Commands of ``everstep-agent`` that need neither a running agent nor a configuration."""
