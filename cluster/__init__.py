"""The API server, as a client sees it: for everything that reads or writes a cluster."""
