"""Slow workers: who makes the others of a job wait, and who does not. Pure; computes with numpy.

The command ``everstep slow`` judges tables with it, and needs nothing else of the controller.
"""
