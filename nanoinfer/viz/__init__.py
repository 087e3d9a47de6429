"""Pictures of a trace: matplotlib figures for papers, slides and notebooks."""
