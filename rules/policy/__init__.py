"""What policies for responders must be."""
