/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few types and constants of the kernel's user-space headers that a BPF program needs. They are
 * ABI and never change; with them here a build needs no kernel headers, on no distribution.
 */
#ifndef DEBURR_BASE_H
#define DEBURR_BASE_H

#include <stdbool.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* enum bpf_map_type, BPF_MAP_CREATE flags, BPF_MAP_UPDATE_ELEM flags */
#define BPF_MAP_TYPE_HASH     1
#define BPF_MAP_TYPE_ARRAY    2
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF  27
#define BPF_F_MMAPABLE        (1U << 10)
#define BPF_ANY               0
#define BPF_NOEXIST           1
#define BPF_RB_NO_WAKEUP      1

#endif
