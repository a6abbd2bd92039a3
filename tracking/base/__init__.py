"""The ground floor: where timetrial is installed, secrets, safe text, and the console.

Everything may import it, and it knows nothing of runs. Import its modules one by one: a refusal then loads no console.
"""
