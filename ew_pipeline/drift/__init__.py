"""Is theta moving, or only what it is measured on?

``series``     what is followed, by week and segment, from what the ledger shows as current
``chart``      a self-starting control chart, its limit calculated from the asked rate of false alarms
``verdicts``   which charts moved together, what that is called, and its words
``alerts``     alerts and acknowledgements in the ledger, what they come from, who is told
``run``        all of it for a ledger
``page``       the chart page, and the same for Prefect

A chart follows one series. Weeks are compared with the weeks before them: their mean, their spread from week
to week, and the error of each estimate. An alarm needs a change that lasts. A change that is only one of
composition (what was observed, how much it sells) is not called a drift of the anomalies.
"""
