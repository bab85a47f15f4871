# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A filesystem that speaks to /dev/fuse itself. It has the files `program`, which is answered for until the server falls
silent, and `silence`, whose bytes are never answered for, and the directory `disk`, on which one can mount something."""

import ctypes
import errno
import os
import signal
import stat
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
MS_NOSUID, MS_NODEV = 2, 4
HEADER = struct.Struct("<IIQQIIII")
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 27, 42
ROOT, PROGRAM, SILENCE, DISK = 1, 2, 3, 4
NAMES = {b"program": PROGRAM, b"silence": SILENCE, b"disk": DISK}
SILENCE_BYTES = 1 << 20


def mount(point, user):
    """Mounts the filesystem for that user, for everybody to use; returns the file that its server reads from."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id={user},group_id={user},allow_other".encode()
    if LIBC.mount(b"hostile", os.fsencode(point), b"fuse", MS_NOSUID | MS_NODEV, options) != 0:
        number = ctypes.get_errno()
        os.close(fuse)
        raise OSError(number, os.strerror(number))
    return fuse


class Server:
    """Answers requests, until SIGUSR1 silences it. It reads them even then: only a request that was read cannot be
    interrupted."""

    def __init__(self, fuse, program):
        self.fuse, self.program, self.silent = fuse, program, False

    def run(self):
        def fall_silent(*_):
            self.silent = True

        signal.signal(signal.SIGUSR1, fall_silent)
        while True:
            try:
                request = os.read(self.fuse, 1 << 18)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, operation, unique, node, *_ = HEADER.unpack_from(request)
            answer = self.answer(operation, node, request[HEADER.size:])
            if answer is None or (self.silent and operation != INIT):
                continue
            error, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(self.fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)

    def answer(self, operation, node, body):
        """The body of an answer, an error number, or None for no answer."""
        if operation == INIT:
            return struct.pack("<IIIIHHIIHH8I", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, *[0] * 8)
        if operation == LOOKUP:
            found = NAMES.get(body.rstrip(b"\0"))
            # Names and attributes are asked for each time.
            return struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + self.attributes(found) if found else errno.ENOENT
        if operation == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if operation in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if operation == READ:
            if node == SILENCE:
                return None
            _, offset, size = struct.unpack_from("<QQI", body)
            return self.program[offset:offset + size]
        if operation in (RELEASE, FLUSH):
            return b""
        return None if operation in (FORGET, BATCH_FORGET) else errno.ENOSYS

    def attributes(self, node):
        size = {PROGRAM: len(self.program), SILENCE: SILENCE_BYTES}.get(node, 0)
        mode = stat.S_IFDIR | 0o755 if node in (ROOT, DISK) else stat.S_IFREG | 0o755
        return struct.pack("<6Q10I", node, size, size // 512 + 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
