"""The chaos program: real launches, a fault for each, `sync`, and then everything is counted, row by row.

    make chaos MINUTES=30 [SEED=7]
    python -m tests.chaos --case 'kill of the worker/rank 0 SIGTERM training' --seed 4711

A kind of case is a module here with a name, variants, and a function that plays one. `count` compares what the folders
of the runs hold with what MLflow holds, without the code under test. A seed makes a case's choices; the moments at
which a fault meets a process are also the machine's, so a case that is repeated may need several tries.
"""
