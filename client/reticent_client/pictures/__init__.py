"""Pictures of policies, days and audits. They need matplotlib; a phone draws none."""
