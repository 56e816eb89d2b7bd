"""Tools for trained models: open one with its tasks, watch a policy; and `cavia doctor`."""
