"""What was flagged, when, on what data, with which model: prove it, make it again, hand it out.

``verify``        nothing in the ledger or in its files was edited, inserted or deleted
``replay``        a run made again from its snapshot, number by number
``history``       what was current on a day; what is stored per pair is removed after some weeks
``export``        a package that an auditor can verify without our database (``standalone``)
``explain``       one pair in one week: why it was flagged or not (``pair_state``, ``explain_page``)

Only the ledger and the home are read: MLflow and Prefect may be gone.
"""
