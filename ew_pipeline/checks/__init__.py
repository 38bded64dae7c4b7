"""What people found at the shelves.

``record``     a filled-in check list, or any table of checks, into the ledger: idempotent, conflicts named
``evaluate``   precision, recall, lift, calibration, cost and saving, with intervals
"""
