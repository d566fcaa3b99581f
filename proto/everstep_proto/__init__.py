"""The contract of agent, controller and command line: generated messages and their conversion."""
