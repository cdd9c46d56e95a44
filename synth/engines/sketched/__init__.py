"""Routes and times together: chunks are put into the gaps of what is planned, and put anew."""
