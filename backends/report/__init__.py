"""Looking at things: text for terminals."""
