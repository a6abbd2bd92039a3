"""Exits with 0 if MLflow answers on its socket, else with 1."""

import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(5)
    connection.connect("/run/mlflow/mlflow.sock")
    connection.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    sys.exit(0 if b" 200 " in connection.recv(100) else 1)
