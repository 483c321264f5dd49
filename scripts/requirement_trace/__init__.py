"""What scripts/compliance is made of: the documents, the sources and the results of the tests."""
