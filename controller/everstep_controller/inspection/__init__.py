"""Inspection at the controller: ranks are asked, and what they tell is judged in a child."""
