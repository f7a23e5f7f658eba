"""The documentation as a site, and the pages that come from code."""
