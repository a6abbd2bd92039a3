"""Language models larger than a GPU: their rates in several precisions, losses by strategy, and torchtitan beside."""
