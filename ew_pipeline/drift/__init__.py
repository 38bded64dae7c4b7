"""Is theta moving, or only what it is measured on?

======================  ==========================================================================
settings                how many weeks between false alarms, where alerts are sent
kinds, source, series   what is followed: by week and segment, from what the ledger shows as live
limits, chart           a self-starting control chart, its limit calculated from the asked rate
attribute               which charts moved together, and what that is called
assess                  the whole judgement: series in, verdicts out; pure
words, alerts, notify   verdicts in words; alerts and acknowledgements in the ledger; who is told
evidence                which stores and SKUs a change comes from
run, standing           all of it for a ledger; how every segment stands
page, markdown, command the chart page; the same for Prefect; ``ew drift``
study                   how the figures were measured: ``ew reproduce drift``
======================  ==========================================================================

A chart follows one series. Weeks are compared with the weeks before them: their mean, their spread from week
to week, and the error of each estimate. An alarm needs a change that lasts, and a change that is only one of
composition (what was observed, how much it sells) is not called a drift of the anomalies.
"""
