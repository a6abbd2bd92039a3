"""The ground floor: where timetrial is installed, secrets, safe text, and the console.

Everything may import it. It does not know what a run is. Import its modules one by one, so that a refusal stays quick.
"""
