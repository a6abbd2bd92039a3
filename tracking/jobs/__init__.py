"""From a request to ended runs: plan, queue, node and follower.

A job is a run folder and the processes that train in it. A sweep is a folder of jobs.
"""
