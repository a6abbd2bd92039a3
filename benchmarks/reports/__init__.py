"""Speed of a report, error rates of its verdicts, and error rates and cost of searches."""
