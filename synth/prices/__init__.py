"""What integer prices of links and shared resources prove, whoever found them."""
