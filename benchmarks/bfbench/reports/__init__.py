"""Tables and charts, and pages that have both."""
