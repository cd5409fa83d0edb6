"""Proofs on a person's own composition and machine: resume, packing, export."""
