"""What several test files share. No tests here; what only one file needs stands in that file."""
