"""Everything MLflow, and the saved model.

``model``, ``predict``       a fit as model.json + arrays.npz, and what it says of other sales
``files``                    those two files: whole or not at all, and refused when they were changed
``pyfunc``, ``registry``     the same behind MLflow's pyfunc interface, as a registered model
``facts``, ``pictures``      what MLflow is told about a week, kept in the run's folder
``store``, ``database``      MLflow set up: embedded in the home, or a server
``weekly``, ``send``         a week's parent run, and a nested run for each segment
``delivery``                 what MLflow has still to be told about a run
``drift_run``                the long-lived run with theta by week
``evaluation``               a run per evaluated publication, from the ledger's rows
``worker``, ``child``        all of it in a process next to the run, which a slow server cannot hold up

MLflow is the experiment view, never the source of truth: a week that cannot be tracked is published all
the same, and sent later.
"""
