"""Which pods of failing nodes are to be asked to leave, and when. Pure."""
