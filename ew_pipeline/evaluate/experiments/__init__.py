"""The experiments of the paper, and those it owes: `ew reproduce …`.

instance      one synthetic instance and one method -> one record
chain_week    one week of a simulated chain -> one record
runner        many of them: parallel, resumable, with progress
summary       records -> the figures of a table
requirements  what we promise of those figures
table1        Table 1 of section 4.1, with Algorithm 2, theta and calibration beside it
regret        regret against n (section 4.1, "Vanishing Regret When n Scales")
robustness    data that are not what the model assumes
chain         what the pairs' own history adds, on a simulated chain
display       tables on stdout
pictures      PNG files, when a folder is given
"""
