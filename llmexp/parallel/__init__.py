"""How ranks share the work: the mesh of processes and the reduction of gradients over it."""
