"""What was asked: checked, completed or refused, before anything starts.

A refusal names the key, the value, what is allowed and the next step. Import its modules one by one.
"""
