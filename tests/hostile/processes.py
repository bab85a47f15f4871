# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hostile processes: what each does to itself. Each function runs in a child of its own, as an unprivileged user, and
returns once it is done."""

import ctypes
import mmap
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.sbrk.restype = ctypes.c_void_p
PR_SET_MM, PR_SET_MM_MAP = 35, 14
MAP_NORESERVE = 0x4000
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PAGE_BYTES = 4096
# The least size of a stack that all architectures allow.
STACK_BYTES = 128 << 10


def check(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def describe(**changed):
    """Tells the kernel where its own arguments and environment are."""
    # As bytes: this user may not be able to read Python's own files, and with them its encodings.
    with open("/proc/self/stat", "rb") as file:
        text = file.read()
    fields = [0, 0, 0] + text[text.rindex(b")") + 2:].split()
    number = lambda index: int(fields[index])  # noqa: E731
    # Numbers of fields as in proc(5).
    layout = {
        "start_code": number(26), "end_code": number(27), "start_data": number(45), "end_data": number(46),
        "start_brk": number(47), "brk": LIBC.sbrk(0), "start_stack": number(28), "arg_start": number(48),
        "arg_end": number(49), "env_start": number(50), "env_end": number(51),
    }
    layout.update(changed)
    packed = struct.pack("<11QQII", *layout.values(), 0, 0, 0xffffffff)
    check(LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP, packed, len(packed), 0))


def mapping(length, file=-1):
    flags = mmap.MAP_PRIVATE | (MAP_NORESERVE | mmap.MAP_ANONYMOUS if file < 0 else 0)
    return check(LIBC.mmap(None, length, mmap.PROT_READ, flags, file, 0))


def silent_arguments(silence):
    """Its arguments and its environment are a file whose server never answers."""
    at = mapping(1 << 16, os.open(silence, os.O_RDONLY))
    describe(arg_start=at, arg_end=at + PAGE_BYTES, env_start=at + PAGE_BYTES, env_end=at + 2 * PAGE_BYTES)


def endless_arguments():
    """Its arguments are 40 GB of zeroes, and so is its environment."""
    length = 40 << 30
    at = mapping(length)
    describe(arg_start=at, arg_end=at + length, env_start=at, env_end=at + length)


def many_mounts(point, count, names=()):
    """It has that many mounts, in a mount namespace of its own, below directories of those names."""
    user = os.getuid()
    check(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    for file, text in [("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {user} 1")]:
        with open(f"/proc/self/{file}", "wb") as to:
            to.write(text.encode())
    check(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    check(LIBC.mount(b"t", os.fsencode(point), b"tmpfs", 0, None))
    for index in range(count):
        directory = os.fsencode(os.path.join(point, *names, str(index)))
        os.makedirs(directory)
        check(LIBC.mount(directory, directory, None, MS_BIND, None))


def many_threads(count):
    """It has that many threads besides its first. They wait in `pause`, without Python."""
    attributes, thread = ctypes.create_string_buffer(64), ctypes.c_ulong()
    LIBC.pthread_attr_init(attributes)
    LIBC.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
    waits = ctypes.cast(LIBC.pause, ctypes.c_void_p)
    for _ in range(count):
        failed = LIBC.pthread_create(ctypes.byref(thread), attributes, waits, None)
        if failed:
            raise OSError(failed, os.strerror(failed))


# Waits for ever: `mov eax, 34` (pause), `syscall`, and again.
PAUSE = b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"


def header(segments, sections, entry, section_names=0):
    return struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 2, 62, 1, entry, 64, sections[0], 0, 64, 56, segments,
                       64, sections[1], section_names)


def segment(address, length):
    return struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, length, length, PAGE_BYTES)


def many_sections():
    """A program with 8192 section headers that all name one text of 1 MB."""
    count, names_bytes, base = 8192, 1 << 20, 0x400000
    code_at = 64 + 56
    table_at = 192
    names_at = table_at + 64 * count
    section = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names_at, names_bytes, 0, 0, 1, 0)
    start = header(1, (table_at, count), base + code_at) + segment(base, PAGE_BYTES) + PAUSE
    return start.ljust(table_at, b"\0") + section * count + b"x" * names_bytes, 0


def many_segments():
    """A program with 1100 segments over one sparse file of 256 MB, that says it is one of Go."""
    count, length, base = 1100, 256 << 20, 0x10000000
    code_at = 64 + 56 * count
    program = header(count, (0, 0), base + code_at)
    program += b"".join(segment(base + index * length, length) for index in range(count)) + PAUSE
    program = program.ljust(-(-len(program) // 16) * 16, b"\0")
    info = b"\xff Go buildinf:" + bytes([8, 2])
    return program + info.ljust(32, b"\0") + bytes([8]) + b"go1.24.0" + bytes([0]), length
