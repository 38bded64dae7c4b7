"""The experiments of the paper, and those it owes: `ew reproduce …`.

instance      one synthetic instance and one method -> one record; what each method is told
near_bayes    our sampler, told all that the ensemble fixes beforehand
record        the record
runner        many of them: parallel, resumable, with progress
summary       records -> the figures of a table
requirements  what we promise of those figures
printed       what the paper prints, and one line on every difference
table1        Table 1 of section 4.1, with Algorithm 2, theta and calibration
auc           AUC against the ideal policy and mean ROC (section 4.1, "… as a Classification Task")
limits        what sets the worst fifth of the instances apart (the same)
regret        regret against n (section 4.1, "Vanishing Regret When n Scales")
robustness    data that are not what the model assumes
chain         what the pairs' own history adds, on a simulated chain
report        a study's tables and figures, printed and kept
page          the kept ones as a page of Markdown
display       tables of verdicts on stdout
pictures      PNG files, when a folder is given
"""
