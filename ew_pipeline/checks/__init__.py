"""What people found at the shelves: recorded, held against what was said, and turned into figures.

``draw``       a random share of unflagged pairs to check as well, without which recall cannot be known
``reading``    a filled-in check list, or any table of checks, as rows of the contract
``recording``  rows into the ledger: idempotent, conflicts named, with what the publication said of each pair
``evaluating`` precision, recall, lift, calibration, cost and saving, with intervals
"""
