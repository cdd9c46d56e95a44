"""The portfolio engine: races the other engines and keeps the frontier."""
