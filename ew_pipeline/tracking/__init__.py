"""Everything MLflow, and the saved model.

``model``, ``predict``       a fit as model.json + arrays.npz, and what it says of other sales
``pyfunc``                   the same behind MLflow's pyfunc interface
``facts``                    what MLflow is told about a week: plain data, kept in the run's folder
``store``                    MLflow set up: embedded in the home, or a server
``weekly``, ``registry``     a week's runs, artifacts and registered models
``drift_run``                the long-lived run with theta by week
``evaluation``               a run per evaluated publication, from the ledger's rows
``worker``, ``child``        all of it in a process beside the run, which a slow server cannot hold up

MLflow is the experiment view, never the source of truth: a week that cannot be tracked is published all
the same, and sent later.
"""
