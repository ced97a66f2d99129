"""HTTP/1.1 from the bytes up, because what goes wrong below HTTP must be made here too."""
