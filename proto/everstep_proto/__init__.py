"""Messages between agent, controller and command line: generated code and its conversion."""
