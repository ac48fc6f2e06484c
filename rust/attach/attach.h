/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the C files of attach: hooks.c redirects amdgpu's calls, with upcalls.c; handover.c takes
 * /dev/kfd from the C amdkfd and gives it back, which inspect.c decides on; hold.c holds the
 * devices meanwhile, isolation.c keeps amdgpu's own scheduling in step, and standin.c answers
 * openers; attach.c decides when, and state.c tells user space.
 */
#ifndef AMDKFD_ATTACH_H
#define AMDKFD_ATTACH_H

#include <linux/mutex.h>
#include <linux/types.h>

/*
 * One attempt to take over, or to give back, at a time. attach.c takes it; nobody else may, and
 * no notifier.
 */
extern struct mutex attach_lock;

/* What the module does, and what /sys/module/amdkfd/parameters/state shows. */
enum attach_state {
	ATTACH_WAITING,		/* for amdgpu, for a GPU, or for what keeps us from taking over */
	ATTACH_REFUSED,		/* it is left to the C amdkfd for good */
	ATTACH_SERVING,
};
void attach_set_state(enum attach_state state);
/* A new attempt: waiting, and nothing is refused yet. */
void attach_begin(void);

/* Why /dev/kfd stays with the C amdkfd: one line for people, without its end. Returns err. */
__printf(2, 3) int refuse(int err, const char *format, ...);
/* What the last one said; empty after attach_begin(). Under attach_lock. */
const char *refusal(void);

/* What happens to a call of amdgpu's into the KFD. */
enum hook_mode {
	HOOK_PASS,	/* the C amdkfd serves it */
	HOOK_OURS,	/* we do */
};

/*
 * Hooks all functions or none. -EBUSY: somebody else redirects one of them (a live patch, say).
 */
int hooks_install(unsigned long (*lookup)(const char *name));
/*
 * Unhooks them, and returns when no task is inside any redirected call or on its way to one. Does
 * not return if ftrace has failed.
 */
void hooks_remove(void);
/*
 * Changes the mode, and returns when nobody acts on the old one. Calls begun under it are over.
 */
void hooks_set_mode(enum hook_mode mode);
/* While blocked, opening /dev/kfd answers -EAGAIN, whoever serves it. */
void hooks_block_open(bool blocked);

/* From here on opening minor 0 of that major number answers -EAGAIN, whoever has or had it. */
int standin_place(unsigned int major);
/* Ends that. Does nothing if there is none. Sleeps. */
void standin_remove(void);

/* amdgpu drives no GPU that C serves: there is nothing to take over yet. */
#define HANDOVER_NO_GPU 1

/*
 * What speaks against taking over, as far as it can be told without hooks and without keeping
 * anybody out: an attempt that is repeated disturbs nobody. 0, HANDOVER_NO_GPU, or an error:
 * -EBUSY may pass.
 */
int handover_check(void);
/* amdgpu is live, its C amdkfd serves. The hooks are in place and pass. Returns the same. */
int handover_take(void);
/* amdgpu is live, we serve: back to the C amdkfd. The hooks pass afterwards. */
void handover_give(void);

#endif
