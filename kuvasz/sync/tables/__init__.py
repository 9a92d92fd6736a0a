"""What is done with tables: prepared, copied, copied again, parked."""
