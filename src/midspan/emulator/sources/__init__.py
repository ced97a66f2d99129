"""Where answers come from: a script, a model, a recording."""
