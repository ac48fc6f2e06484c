/* SPDX-License-Identifier: GPL-2.0-only */
/* The module's tracepoints: events/amdkfd in tracefs. trace.c makes them, trace.rs calls them. */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM amdkfd

#if !defined(AMDKFD_LINUX_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define AMDKFD_LINUX_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(amdkfd_ioctl,
	TP_PROTO(const char *name, size_t length),
	TP_ARGS(name, length),
	TP_STRUCT__entry(
		__string_len(name, name, length)
	),
	TP_fast_assign(
		__assign_str(name);
	),
	TP_printk("%s", __get_str(name))
);

TRACE_EVENT(amdkfd_ioctl_done,
	TP_PROTO(const char *name, size_t length, int result),
	TP_ARGS(name, length, result),
	TP_STRUCT__entry(
		__string_len(name, name, length)
		__field(int, result)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->result = result;
	),
	TP_printk("%s result=%d", __get_str(name), __entry->result)
);

TRACE_EVENT(amdkfd_queue,
	TP_PROTO(unsigned int change, unsigned int gpu_id, unsigned int queue_id, int result),
	TP_ARGS(change, gpu_id, queue_id, result),
	TP_STRUCT__entry(
		__field(unsigned int, change)
		__field(unsigned int, gpu_id)
		__field(unsigned int, queue_id)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->change = change;
		__entry->gpu_id = gpu_id;
		__entry->queue_id = queue_id;
		__entry->result = result;
	),
	TP_printk("%s gpu_id=%u queue_id=%u result=%d",
		  __print_symbolic(__entry->change, { 0, "create" }, { 1, "destroy" },
				   { 2, "change" }),
		  __entry->gpu_id, __entry->queue_id, __entry->result)
);

TRACE_EVENT(amdkfd_process,
	TP_PROTO(unsigned int change, int pid, unsigned int gpu_id, unsigned int evicted,
		 int result),
	TP_ARGS(change, pid, gpu_id, evicted, result),
	TP_STRUCT__entry(
		__field(unsigned int, change)
		__field(int, pid)
		__field(unsigned int, gpu_id)
		__field(unsigned int, evicted)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->change = change;
		__entry->pid = pid;
		__entry->gpu_id = gpu_id;
		__entry->evicted = evicted;
		__entry->result = result;
	),
	TP_printk("%s pid=%d gpu_id=%u evicted=%u result=%d",
		  __print_symbolic(__entry->change, { 0, "evict" }, { 1, "restore" },
				   { 2, "quiesce" }),
		  __entry->pid, __entry->gpu_id, __entry->evicted, __entry->result)
);

TRACE_EVENT(amdkfd_event,
	TP_PROTO(unsigned int change, unsigned int event_id),
	TP_ARGS(change, event_id),
	TP_STRUCT__entry(
		__field(unsigned int, change)
		__field(unsigned int, event_id)
	),
	TP_fast_assign(
		__entry->change = change;
		__entry->event_id = event_id;
	),
	TP_printk("%s event_id=%u",
		  __print_symbolic(__entry->change, { 0, "create" }, { 1, "destroy" },
				   { 2, "reset" },
				   { 3, "signal" }),
		  __entry->event_id)
);

TRACE_EVENT(amdkfd_interrupt,
	TP_PROTO(unsigned int gpu_id, const u32 *ih),
	TP_ARGS(gpu_id, ih),
	TP_STRUCT__entry(
		__field(unsigned int, gpu_id)
		__array(u32, words, 8)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		memcpy(__entry->words, ih, sizeof(__entry->words));
	),
	TP_printk("gpu_id=%u entry=%s", __entry->gpu_id,
		  __print_array(__entry->words, 8, sizeof(u32)))
);

TRACE_EVENT(amdkfd_svm_set_attr,
	TP_PROTO(int pid, u64 start, u64 pages, unsigned int attributes, int result),
	TP_ARGS(pid, start, pages, attributes, result),
	TP_STRUCT__entry(
		__field(int, pid)
		__field(u64, start)
		__field(u64, pages)
		__field(unsigned int, attributes)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->pid = pid;
		__entry->start = start;
		__entry->pages = pages;
		__entry->attributes = attributes;
		__entry->result = result;
	),
	TP_printk("pid=%d start=%#llx pages=%llu attributes=%u result=%d", __entry->pid,
		  __entry->start, __entry->pages, __entry->attributes, __entry->result)
);

TRACE_EVENT(amdkfd_svm_fault,
	TP_PROTO(int pid, unsigned int gpu_id, u64 address, bool write, int result),
	TP_ARGS(pid, gpu_id, address, write, result),
	TP_STRUCT__entry(
		__field(int, pid)
		__field(unsigned int, gpu_id)
		__field(u64, address)
		__field(bool, write)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->pid = pid;
		__entry->gpu_id = gpu_id;
		__entry->address = address;
		__entry->write = write;
		__entry->result = result;
	),
	TP_printk("pid=%d gpu_id=%u address=%#llx write=%d result=%d", __entry->pid,
		  __entry->gpu_id, __entry->address, __entry->write, __entry->result)
);

TRACE_EVENT(amdkfd_svm_migrate,
	TP_PROTO(int pid, u64 start, u64 pages, unsigned int from, unsigned int to,
		 unsigned int trigger, int result),
	TP_ARGS(pid, start, pages, from, to, trigger, result),
	TP_STRUCT__entry(
		__field(int, pid)
		__field(u64, start)
		__field(u64, pages)
		__field(unsigned int, from)
		__field(unsigned int, to)
		__field(unsigned int, trigger)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->pid = pid;
		__entry->start = start;
		__entry->pages = pages;
		__entry->from = from;
		__entry->to = to;
		__entry->trigger = trigger;
		__entry->result = result;
	),
	TP_printk("pid=%d start=%#llx pages=%llu from=%u to=%u trigger=%s result=%d",
		  __entry->pid, __entry->start, __entry->pages, __entry->from, __entry->to,
		  __print_symbolic(__entry->trigger, { 0, "prefetch" }, { 1, "gpu" },
				   { 2, "cpu" }, { 3, "eviction" }),
		  __entry->result)
);

TRACE_EVENT(amdkfd_svm_invalidate,
	TP_PROTO(int pid, u64 start, u64 pages, unsigned int reason, bool evict),
	TP_ARGS(pid, start, pages, reason, evict),
	TP_STRUCT__entry(
		__field(int, pid)
		__field(u64, start)
		__field(u64, pages)
		__field(unsigned int, reason)
		__field(bool, evict)
	),
	TP_fast_assign(
		__entry->pid = pid;
		__entry->start = start;
		__entry->pages = pages;
		__entry->reason = reason;
		__entry->evict = evict;
	),
	TP_printk("pid=%d start=%#llx pages=%llu reason=%s evict=%d", __entry->pid,
		  __entry->start, __entry->pages,
		  __print_symbolic(__entry->reason, { 0, "unmap" }, { 1, "release" },
				   { 2, "migrate" }, { 3, "other" }, { 4, "protect" }),
		  __entry->evict)
);

TRACE_EVENT(amdkfd_svm_restore,
	TP_PROTO(int pid, unsigned int failures, int result),
	TP_ARGS(pid, failures, result),
	TP_STRUCT__entry(
		__field(int, pid)
		__field(unsigned int, failures)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->pid = pid;
		__entry->failures = failures;
		__entry->result = result;
	),
	TP_printk("pid=%d failures=%u result=%d", __entry->pid, __entry->failures,
		  __entry->result)
);

#endif

/* Outside of the guard: it reads this file again. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
