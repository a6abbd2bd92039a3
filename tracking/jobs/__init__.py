"""Runs of a launch, from request to result: plan, queue, node and follower.

A job is a run folder and the processes that train in it. A sweep is a folder of jobs.
"""
