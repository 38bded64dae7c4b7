"""Gamma-Poisson factorisation, with theta on leave-one-out predictions."""
