"""What measuring costs a training: while all goes well, and while the tracking server fails."""
