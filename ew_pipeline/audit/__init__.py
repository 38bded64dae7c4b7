"""What was flagged, when, on what data, with which model: prove it, make it again, hand it out.

``verify``    nothing in the ledger or in its files was edited, inserted or deleted
``replay``    a run made again from its snapshot, number by number
``as_of``     what was live at a moment, and what became of it
``export``    a package that an auditor can verify without our database
``prune``     what is stored per pair goes after some weeks; all the rest stays

Only the ledger and the home are read: MLflow and Prefect may be gone.
"""
