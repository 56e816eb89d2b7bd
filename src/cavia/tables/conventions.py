"""scikit-learn's base classes, or stand-ins that name the missing package: `from cavia import *` works without them."""

from typing import Any

from cavia.errors import missing_package

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
except ImportError:

    class BaseEstimator:  # type: ignore[no-redef]
        """No estimator can be made."""

        def __new__(cls, *_: Any, **__: Any) -> "BaseEstimator":
            raise missing_package(cls.__name__, "scikit-learn", "sklearn")

    class ClassifierMixin:  # type: ignore[no-redef]
        """Nothing."""

    class RegressorMixin:  # type: ignore[no-redef]
        """Nothing."""


__all__ = ["BaseEstimator", "ClassifierMixin", "RegressorMixin"]
