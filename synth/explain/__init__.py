"""Explanations: conflicts of rules, the cost of a rule, the critical path of a schedule."""
