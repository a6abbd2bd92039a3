"""Time from the command to the first step: imports, bytecode, compilation, forks, Slurm."""
