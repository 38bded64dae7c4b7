"""The entrywise method: numpy, scipy and numba only; nothing here reads files or starts anything.

The paper is Farias, Li and Peng, *Fixing Inventory Inaccuracies At Scale*. Its steps, and where they are:

==== =============================================== ============================= ===========================
Step In the paper                                    File                          Function
==== =============================================== ============================= ===========================
1    M = nm/|Omega| SVD(X)_r (Algorithm 1)           paper/denoise.py              zero_filled_svd
1    soft-impute (section 4, appendix C)             paper/denoise.py              soft_impute_to_rank
1    least squares, Poisson-weighted (ours)          large/als.py                  sweep
1+2  Gamma-Poisson factorisation, cavity (ours)      variational/fit.py            fit_variational
2    theta on the cavity predictive (ours)           variational/theta.py          fit_theta
1-3  the same, sampled and averaged over ranks       sampler/chain.py, ensemble.py run_chain, sample_ensemble
–    theta's long moves between chains' hills (ours) sampler/leaps.py              ThetaLeaps
–    anomaly rates by store and by SKU (ours)        variational/axis_rates.py     find_axes, update_axis
1-3  the same, over anomaly families and no anomaly  sampler/tier.py               fit_thorough
–    which family, by its Bayes factor (ours)        sampler/family_evidence.py    log_bayes_factor
–    are there anomalies at all (ours)               sampler/rate_posterior.py     negligible_rate
–    rank, noise, family by cross-validation         selection.py, folds.py        rank_path, rank_curve
2    moment matching, Eq. (optimize-F)               paper/moments.py              match_moments
2    maximum likelihood ("Aside" of section 3.3)     paper/likelihood.py           maximum_likelihood
2    intervals and "not identified" (ours)           intervals.py                  information_interval
3    f_ij, Eq. (fij-star) and (plug-in-f)            paper/posterior.py            healthy_probability
3    the drop itself (ours)                          paper/posterior.py            drop_probability
4    cost rule, Eq. (decision-rule); cap per store   paper/decision.py, costs.py   flag_by_cost, flag_with_cap
4    Algorithm 2, rate gamma (appendix D)            paper/rate.py                 flag_by_rate
–    pi*, the ideal policy (section 3.1)             paper/posterior.py            ideal_healthy_probability
–    Anom(alpha, M) and g(alpha), Eq. (def-g)        anomalies.py                  AnomalyModel
1+2  regressions with the mixture, many pairs (ours) large/fit.py, large/theta.py  fit_rounds, fit_binned
–    all of it for one week                          detector.py                   EntrywiseDetector
–    the paper's own variants                        paper/variants.py             fit_reference
–    the tiers for many pairs                        large/tier.py                 fit_large_tier
–    their rank and start                            large/rank.py                 sketch
==== =============================================== ============================= ===========================

Symbols, used inside functions only: X counts; Omega the observed set; M expected sales if healthy,
M = U V^T (times the level L where history is given); alpha severity, g(alpha) the share still sold;
p_A the anomaly rate; theta = (alpha, p_A); e(theta) = 1 - p_A (1 - g(alpha)); f = P(healthy | X);
s0 the size of negative binomial noise, Var = M + M^2 / s0; c0 the cost of a false alarm, c1 of a miss.

Where we leave the paper, and why:

- Flagging a healthy pair costs c0 and missing an anomaly c1, as its Algorithm 1 has it; a formula of its
  section 2 and a sentence of section 4 have them the other way round.
- Exp(alpha) has mean alpha, so Poisson(Exp(alpha) M) is geometric with mean alpha M.
- Nothing is told to the fit: its printed regret of 0.06 was scored with the true theta and the true rank.
- theta is learnt together with M and on leave-one-out predictions; in-sample, M has absorbed a part of
  each anomaly and p_A comes out too low.
- Noise may be overdispersed; where data are few or noise is strong, f is taken cautiously (see ensemble.py).
"""
