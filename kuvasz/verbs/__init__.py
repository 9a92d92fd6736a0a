"""The work of the command's verbs, one file each; `kuvasz.cli` parses the arguments and prints what they return."""
