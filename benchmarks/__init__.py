"""What the figures of docs/results were measured with: programs to run by hand, in rooms by what they ask."""
