"""What is kept of a training when it has ended, where that is asked for: its weights, and a program for MLflow."""
