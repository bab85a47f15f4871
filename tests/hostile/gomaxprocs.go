// SPDX-License-Identifier: Apache-2.0 OR MIT

// Maps a file over the page that holds the runtime's `gomaxprocs`, says so with one byte, and does nothing more.
//
//	gomaxprocs ADDRESS FILE
package main

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

func main() {
	address, err := strconv.ParseUint(os.Args[1], 16, 64)
	if err != nil {
		panic(err)
	}
	file, err := syscall.Open(os.Args[2], syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	pageBytes := uintptr(os.Getpagesize())
	page := uintptr(address) &^ (pageBytes - 1)
	said := byte('+')
	// The runtime needs the page that is covered now: only system calls that do without the runtime may follow.
	_, _, failed := syscall.RawSyscall6(syscall.SYS_MMAP, page, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_FIXED, uintptr(file), 0)
	if failed == 0 {
		syscall.RawSyscall(syscall.SYS_WRITE, 1, uintptr(unsafe.Pointer(&said)), 1)
	}
	for {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
