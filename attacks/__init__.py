"""Attacks on the library: every public call, every command, every file format against generated misuse.

`make attack` runs them for an hour and writes results/attack/; the tests run a few seconds of each.
"""
