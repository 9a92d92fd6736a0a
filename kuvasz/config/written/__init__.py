"""The map's file as a program writes it: single edits, everything else as a person left it."""
