"""How the steps of a run are called: directly or as tasks of a Prefect flow; Prefect's embedded server."""
