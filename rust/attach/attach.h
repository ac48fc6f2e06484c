/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Between the C files of attach: hooks.c redirects amdgpu's calls, handover.c takes /dev/kfd from the C
 * amdkfd and gives it back, standin.c answers openers meanwhile, attach.c decides when.
 */
#ifndef AMDKFD_ATTACH_H
#define AMDKFD_ATTACH_H

#include <linux/mutex.h>
#include <linux/types.h>

/* One hand-over at a time, and one event of amdgpu's. attach.c takes it. */
extern struct mutex attach_lock;

/* What happens to a call of amdgpu's into the KFD. */
enum hook_mode {
	HOOK_PASS,	/* the C amdkfd serves it */
	HOOK_OURS,	/* we do */
};

/* Hooks all functions or none. -EBUSY: somebody else redirects one of them (a live patch, say). */
int hooks_install(unsigned long (*lookup)(const char *name));
/* Unhooks them, and returns when no task is inside any redirected call or on its way to one. */
void hooks_remove(void);
/* Changes the mode, and returns when nobody acts on the old one. Calls begun under it are over. */
void hooks_set_mode(enum hook_mode mode);
/* While blocked, opening /dev/kfd answers -EAGAIN, whoever serves it. */
void hooks_block_open(bool blocked);

/* From here on opening minor 0 of that major number answers -EAGAIN, whoever has or had it. */
int standin_place(unsigned int major);
/* Ends that. Does nothing if there is none. Sleeps. */
void standin_remove(void);

/*
 * -EBUSY, and a line that says so: a GPU is being reset. Asked before the hooks are placed, because that
 * waits for a reset that is busy. One that begins later meets handover_take().
 */
int handover_check(void);
/* Hot: amdgpu is live, its C amdkfd serves. The hooks are in place and pass. */
int handover_take(void);
/* amdgpu is live, we serve: back to the C amdkfd. The hooks pass afterwards. */
void handover_give(void);

#endif
