"""The command line of Everstep: ask the controller, decide as its operator, show the demo."""
