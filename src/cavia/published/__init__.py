"""Models that come with the package: trained by `cavia reproduce`, loaded by name.

A model is a folder here with `model.cavia` and the `config.json` of its run; `models.json` says what each is.
"""
