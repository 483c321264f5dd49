"""What scripts/mutants is made of."""
