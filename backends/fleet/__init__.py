"""After a cluster ran: models fitted to its times, tuner files, evidence and predictions."""
