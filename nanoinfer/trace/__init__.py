"""What a run decided and changed, and every question one can ask of it. Imports no torch."""
