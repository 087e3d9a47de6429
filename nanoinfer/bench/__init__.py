"""`nanoinfer bench`: how many tokens per second this engine serves, and how far that is from what the memory allows."""
