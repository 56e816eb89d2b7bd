"""Functions of tensors as compiled graphs: tracing, and a pass over products of matrices."""
