"""The commands of `midspan`, each in a module of its name with `add_arguments` and `run`."""
