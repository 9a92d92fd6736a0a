"""Whose the tables of lakes are, where several lakes are fed by one log."""
