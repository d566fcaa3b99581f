"""The command `everstep`: asks the controller, orders as its operator, and runs the demo."""
