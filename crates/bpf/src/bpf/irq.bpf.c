// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How long interrupts took, on which CPU, and whose thread held it meanwhile.
 *
 * A hard interrupt that comes while a soft one is served is not counted twice. A soft interrupt
 * that a thread serves at the end of a call of its own, as for what it sends to this host, is told
 * from one that interrupts it: there, the kernel keeps the thread from being preempted
 * (__local_bh_enable_ip).
 *
 * There must be no program at irq_work_entry and irq_work_exit: before 6.17, the end of a program
 * may ask for such an interrupt (rcu_read_unlock_special), and so could go on without end.
 */
#include "kern_io.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "irq.h"
#include "read.bpf.h"
#include "serving.bpf.h"

#define PREEMPT_MASK 0x000000ff

/* Set by the loader. Distance from a CPU's run queue to its preempt count; 0 = not known. */
const volatile __s64 preempt_minus_rq;

/* Parity of the reader's current second; it reads the sums of the other one. */
__u32 half = 0;
/* How often the programs for frequent interrupts were attached: a beginning counts until they are
 * again. */
__u32 watch_number = 0;
/*
 * Least depth of preemption that was seen in a soft interrupt: what the kernel itself adds to call
 * a program. It is that of each that interrupts a program in user space.
 */
__u32 least_depth = PREEMPT_MASK;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irq_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct irq_key);
	__type(value, struct irq_sum);
} sums SEC(".maps");

/* Variables that exist for their types, which the reader uses. */
struct irq_key exported_key = {};
struct irq_sum exported_sum = {};
enum irq_kind exported_kind = IRQ_SOFT;
enum irq_context exported_context = IRQ_INTERRUPTS;

static __always_inline struct irq_cpu *this_cpu(__u32 *number)
{
	*number = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&cpus, number);
}

/* A key has the CPU in it: one CPU at a time writes to its sum. */
static __always_inline struct irq_sum *sum_of(__u64 *cell, struct irq_key *key)
{
	struct irq_sum none = {}, *sum = bpf_map_lookup_elem(&sums, key);
	__u64 current, leader;

	if (sum)
		return sum;
	current = bpf_get_current_task();
	leader = ADDRESS_AT(cell, struct task_struct, current, group_leader);
	none.leader_boot_ns = NUMBER_AT(struct task_struct, leader, start_boottime);
	none.kernel = !!(NUMBER_AT(struct task_struct, current, flags) & PF_KTHREAD);
	bpf_probe_read_kernel(none.comm, sizeof(none.comm),
			      (void *)(leader + bpf_core_field_offset(struct task_struct, comm)));
	bpf_map_update_elem(&sums, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sums, key);
}

static __always_inline void add(struct irq_cpu *area, __u64 *cell, struct irq_key *key, __u64 ns,
				__u64 now)
{
	struct irq_sum *sum;

	key->tgid = bpf_get_current_pid_tgid() >> 32;
	key->half = half & 1;
	sum = sum_of(cell, key);
	if (!sum) {
		area->lost.sums_full++;
		return;
	}
	if (now - ns - sum->ended_ns >= IRQ_PAUSE_NS)
		sum->bursts++;
	sum->ended_ns = now;
	sum->ns += ns;
	sum->count++;
	if (ns > sum->longest_ns)
		sum->longest_ns = ns;
}

/* --- hard interrupts --- */

static __always_inline int hard_began(__u8 kind, __u32 line)
{
	__u32 cpu;
	struct irq_cpu *area = this_cpu(&cpu);
	struct irq_serving *serves = served_by(cpu);

	if (serves) {
		serves->line = line;
		serves->hard = 1 + kind;
	}
	if (!area)
		return 0;
	area->runs++;
	area->hard_since_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int hard_ended(__u8 kind, __u32 line)
{
	struct irq_key key = { .kind = kind, .line = line };
	struct irq_cpu *area = this_cpu(&key.cpu);
	struct irq_serving *serves = served_by(key.cpu);
	__u64 now = bpf_ktime_get_ns(), since, ns;

	if (serves)
		serves->hard = 0;
	if (!area)
		return 0;
	area->runs++;
	since = area->hard_since_ns;
	area->hard_since_ns = 0;
	if (!since || now < since)
		return 0;
	ns = now - since;
	area->hard_ns += ns;
	add(area, &area->hard_cell, &key, ns, now);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int on_device_began(unsigned long long *ctx)
{
	return hard_began(IRQ_DEVICE, arg(ctx, 0));
}

SEC("tp_btf/irq_handler_exit")
int on_device_ended(unsigned long long *ctx)
{
	return hard_ended(IRQ_DEVICE, arg(ctx, 0));
}

SEC("tp_btf/local_timer_entry")
int on_timer_began(unsigned long long *ctx)
{
	return hard_began(IRQ_TIMER, 0);
}

SEC("tp_btf/local_timer_exit")
int on_timer_ended(unsigned long long *ctx)
{
	return hard_ended(IRQ_TIMER, 0);
}

static __always_inline int call_began(void)
{
	__u32 cpu;
	struct irq_cpu *area = this_cpu(&cpu);

	if (!area)
		return 0;
	area->call_seen++;
	area->call_watch_number = watch_number;
	return hard_began(IRQ_CALL, 0);
}

static __always_inline int call_ended(void)
{
	__u32 cpu;
	struct irq_cpu *area = this_cpu(&cpu);

	/* It began while it was not watched, or before. */
	if (area && area->call_watch_number != watch_number)
		area->hard_since_ns = 0;
	return hard_ended(IRQ_CALL, 0);
}

SEC("tp_btf/call_function_entry")
int on_call_began(unsigned long long *ctx)
{
	return call_began();
}

SEC("tp_btf/call_function_exit")
int on_call_ended(unsigned long long *ctx)
{
	return call_ended();
}

SEC("tp_btf/call_function_single_entry")
int on_single_began(unsigned long long *ctx)
{
	return call_began();
}

SEC("tp_btf/call_function_single_exit")
int on_single_ended(unsigned long long *ctx)
{
	return call_ended();
}

/* --- soft interrupts --- */

static __always_inline __u32 context_of(struct irq_cpu *area)
{
	__u64 at;
	__u32 depth;

	if (!preempt_minus_rq)
		return IRQ_NOT_KNOWN;
	if (!area->rq) {
		at = ADDRESS_AT(&area->soft_cell, struct task_struct, bpf_get_current_task(),
				se.cfs_rq);
		area->rq = ADDRESS_AT(&area->soft_cell, struct cfs_rq, at, rq);
	}
	at = area->rq + preempt_minus_rq;
	/* struct hlist_head serves as a kernel type that is a number; the count is half of it. */
	depth = ADDRESS_AT(&area->soft_cell, struct hlist_head, at, first) & PREEMPT_MASK;
	if (depth < least_depth)
		least_depth = depth;
	return depth > least_depth ? IRQ_OWN_CALL : IRQ_INTERRUPTS;
}

SEC("tp_btf/softirq_entry")
int on_soft_began(unsigned long long *ctx)
{
	__u32 cpu;
	struct irq_cpu *area = this_cpu(&cpu);
	struct irq_serving *serves = served_by(cpu);

	if (!area)
		return 0;
	area->runs++;
	area->soft_seen++;
	area->watch_number = watch_number;
	area->context = context_of(area);
	if (serves) {
		serves->context = area->context;
		serves->soft = 1 + (__u32)arg(ctx, 0);
	}
	area->hard_before_ns = area->hard_ns;
	area->soft_since_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int on_soft_ended(unsigned long long *ctx)
{
	struct irq_key key = { .kind = IRQ_SOFT, .line = arg(ctx, 0) };
	struct irq_cpu *area = this_cpu(&key.cpu);
	struct irq_serving *serves = served_by(key.cpu);
	__u64 since, now, ns, hard;

	if (serves)
		serves->soft = 0;
	if (!area)
		return 0;
	area->runs++;
	since = area->soft_since_ns;
	area->soft_since_ns = 0;
	if (!since || area->watch_number != watch_number)
		return 0;
	now = bpf_ktime_get_ns();
	ns = now > since ? now - since : 0;
	hard = area->hard_ns - area->hard_before_ns;
	ns -= hard < ns ? hard : ns;
	key.context = area->context;
	add(area, &area->soft_cell, &key, ns, now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
