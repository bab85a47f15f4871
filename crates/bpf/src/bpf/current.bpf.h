/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Identity of the task that runs on this CPU. Included by the programs. */
#ifndef DEBURR_CURRENT_BPF_H
#define DEBURR_CURRENT_BPF_H

/* include/linux/sched.h */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD   0x00200000

/* Sets tid, tgid, leader_boot_ns and comm in `*to`. Returns the flags of the task. */
#define NOTE_CURRENT(cell, to)                                                                 \
	({                                                                                     \
		__u64 task_ = bpf_get_current_task();                                          \
		__u64 leader_ = ADDRESS_AT(cell, struct task_struct, task_, group_leader);     \
		(to)->tid = NUMBER_AT(struct task_struct, task_, pid);                         \
		(to)->tgid = NUMBER_AT(struct task_struct, task_, tgid);                       \
		(to)->leader_boot_ns = NUMBER_AT(struct task_struct, leader_, start_boottime); \
		bpf_get_current_comm((to)->comm, sizeof((to)->comm));                          \
		NUMBER_AT(struct task_struct, task_, flags);                                   \
	})

#endif
