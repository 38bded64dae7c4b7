"""`ew up`: servers, worker and schedule of one machine, in the foreground, under one supervisor.

``plan``        what to start: sources, ports, the flows' place, the environment of every part
``parts``       the commands, and how to tell that each does its work
``supervise``   started, watched, started again; ended together
``processes``   every process that was started, also by what was started, found by a mark in its environment
``sentinel``    ends them when `ew up` was killed and cannot
``schedule``    work pool, deployments, the next run, runs that an earlier `ew up` left behind
``standing``    one `ew up` in a home, and where it is
"""
