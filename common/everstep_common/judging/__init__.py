"""The language of judgement that agent, controller and command line share. Pure."""
