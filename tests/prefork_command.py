"""The command that starts a program in tests/prefork.py; it imports little, so that it starts at once."""

import marshal
import os
import socket
import sys


def send(connection: socket.socket) -> None:
    """Send the files, folder, environment and arguments of this process."""
    data = marshal.dumps((dict(os.environ), sys.argv[2:]))
    socket.send_fds(connection, [len(data).to_bytes(4, "big")], [0, 1, 2, os.open(".", os.O_RDONLY)])
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[list[int], dict[str, str], list[str]]:
    """Return the files and the folder, the environment and the arguments of a command."""
    size, files, _, _ = socket.recv_fds(connection, 4, 4)
    environment, arguments = marshal.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
    return files, environment, arguments


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        send(connection)
        for file in range(3):
            os.close(file)
        code = connection.recv(10)
    os._exit(int(code or 1))
