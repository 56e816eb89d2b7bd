"""Fast context adaptation: one network for many tasks, a few numbers per task (CAVIA, Zintgraf et al., ICML 2019)."""

from lazy_loader import attach_stub

__version__ = "0.2.0"

# The names of __init__.pyi, each imported at its first use: the command line answers at once, and starts its workers
# before it imports PyTorch itself.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
