"""The paper's numbers as printed: the mean, and half the width of the 95 % interval where it gives one."""

TABLE1: dict[tuple[str, int], tuple[float, float]] = {  # method and extra inputs → MSE
    **{("CAVIA", n): (mean, 0.02) for n, mean in ((2, 0.21), (3, 0.20), (4, 0.19), (5, 0.19), (50, 0.19))},
    ("CAVIA", 1): (0.84, 0.06),
    **{
        ("MAML", n): (mean, 0.02)
        for n, mean in ((0, 0.33), (1, 0.29), (2, 0.24), (3, 0.24), (4, 0.23), (5, 0.23), (50, 0.23))
    },
}
TABLE2: dict[tuple[str, str], dict[int, float]] = {  # method and order → known pixels → pixel MSE
    ("CAVIA", "random"): {10: 0.037, 100: 0.014, 1000: 0.006},
    ("CAVIA", "ordered"): {10: 0.053, 100: 0.047, 1000: 0.006},
    ("MAML", "random"): {10: 0.040, 100: 0.017, 1000: 0.006},
    ("MAML", "ordered"): {10: 0.055, 100: 0.047, 1000: 0.007},
    ("CNP", "random"): {10: 0.039, 100: 0.016, 1000: 0.009},
    ("CNP", "ordered"): {10: 0.057, 100: 0.047, 1000: 0.021},
}
TABLE3: dict[tuple[str, int], dict[int, tuple[float, float | None]]] = {  # method and filters → shots → accuracy in %
    ("CAVIA", 32): {1: (47.24, 0.65), 5: (59.05, 0.54)},
    ("CAVIA", 128): {1: (49.84, 0.68), 5: (64.63, 0.54)},
    ("CAVIA", 512): {1: (51.82, 0.65), 5: (65.85, 0.55)},
    ("CAVIA (first order)", 512): {1: (49.92, 0.68), 5: (63.59, 0.57)},
    ("MAML", 32): {1: (48.07, 1.75), 5: (63.15, 0.91)},
    ("MAML", 64): {1: (44.70, 1.69), 5: (61.87, 0.93)},
}
TABLE3_ITERATIONS = 60_000
# Rows of Table 3 that the paper quotes from others, with different networks and budgets.
QUOTED: dict[str, dict[int, tuple[float, float | None]]] = {
    "Matching Networks, quoted": {1: (46.6, None), 5: (60.0, None)},
    "Meta-LSTM, quoted": {1: (43.44, 0.77), 5: (60.60, 0.71)},
    "ProtoNets, quoted": {1: (46.61, 0.78), 5: (65.77, 0.70)},
    "Meta-SGD, quoted": {1: (50.47, 1.87), 5: (64.03, 0.94)},
    "Reptile, quoted": {1: (49.97, 0.32), 5: (65.99, 0.58)},
    "MT-Net, quoted": {1: (51.70, 1.84)},
    "VERSA, quoted": {1: (53.40, 1.82), 5: (67.37, 0.86)},
}
# Squared errors of whole trajectories in published runs of CAVIA and NCF (Nzoyem et al., 2025); not verified by us.
DYNAMICS: dict[str, dict[tuple[str, str], float]] = {  # method → systems and measure → MSE
    "CAVIA": {
        ("Lotka–Volterra", "in-domain"): 1.8e-3,
        ("Lotka–Volterra", "adapted"): 1.6e-3,
        ("glycolysis", "in-domain"): 5.8e-3,
        ("glycolysis", "adapted"): 3.5e-2,
    },
    "NCF": {
        ("Lotka–Volterra", "in-domain"): 3.7e-5,
        ("glycolysis", "in-domain"): 3.3e-4,
        ("glycolysis", "adapted"): 2.8e-4,
    },
}
