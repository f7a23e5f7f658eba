"""The Dockerfile: what it says, and what comes of its commands without a container engine."""
