"""Values: frozen Structs that every layer shares, without behaviour of their own and without I/O."""
