"""What the published flags and other policies would have cost.

``labels``                 anomalies by the rule labels of the weeks around, or by outside truth
``view``                   what a policy may see: nothing later than the week it scores
``policies``, ``registry`` ours, the paper's modes and what a retailer could do instead
``backtest``               every policy over many weeks; ``run_backtest`` from a sales file
``published``, ``run``     published decisions, once their labels are complete
``measures``, ``metrics``  cost, ranking, calibration
``page``                   the result as one file
"""
