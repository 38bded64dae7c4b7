"""The servers of one machine: Prefect's embedded one, and all that `ew up` starts under one supervisor.

``plan``        what to start: sources, ports, the flows' place, the environment of every part
``parts``       the commands, and how to tell that each does its work
``supervisor``  started, watched, started again, ended together; a mark in the environment finds processes
``sentinel``    ends them when `ew up` was killed and cannot
``schedule``    work pool, deployments, the next run, runs that an earlier `ew up` left behind
``standing``    one `ew up` in a home, and where it is
``prefect``     the server that a single `ew run` starts when there is no other
"""
