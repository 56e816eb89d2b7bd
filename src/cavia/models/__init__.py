"""Networks f(x; φ, θ) with a task axis: x [T, N, ...] and context [T, C] in, predictions [T, N, ...] out."""
