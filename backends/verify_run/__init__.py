"""Did a library's files run: evidence of logs and times, and predictions beside them."""
