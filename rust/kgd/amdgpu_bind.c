// SPDX-License-Identifier: GPL-2.0-only
/*
 * Binds amdgpu's symbols (and a few of drm's, its scheduler's and ttm's) to this module: one
 * static_call for each function, one pointer for each object. The addresses come from kallsyms; a
 * static_call makes of them direct calls.
 */
#include "amdgpu_bind.h"

#define FUNCTION(name) DEFINE_STATIC_CALL_NULL(bound_##name, name);
#define KERNEL_FUNCTION(name) FUNCTION(name)
#define DRM_FUNCTION(name) FUNCTION(name)
#define SCHED_FUNCTION(name) FUNCTION(name)
#define TTM_FUNCTION(name) FUNCTION(name)
#define OBJECT(name) typeof(name) *bound_##name;
#include "amdgpu_symbols.h"
#undef FUNCTION
#undef KERNEL_FUNCTION
#undef DRM_FUNCTION
#undef SCHED_FUNCTION
#undef TTM_FUNCTION
#undef OBJECT

static const struct binding {
	const char *name;
	struct static_call_key *key;	/* a function's */
	void *trampoline;
	void **object;			/* an object's */
} bindings[] = {
#define FUNCTION_OF(prefix, symbol)					\
	{ .name = prefix #symbol, .key = &STATIC_CALL_KEY(bound_##symbol),	\
	  .trampoline = STATIC_CALL_TRAMP_ADDR(bound_##symbol) },
#define FUNCTION(symbol) FUNCTION_OF("amdgpu:", symbol)
#define KERNEL_FUNCTION(symbol) FUNCTION_OF("", symbol)
#define DRM_FUNCTION(symbol) FUNCTION_OF("drm:", symbol)
#define SCHED_FUNCTION(symbol) FUNCTION_OF("gpu_sched:", symbol)
#define TTM_FUNCTION(symbol) FUNCTION_OF("ttm:", symbol)
#define OBJECT(symbol)							\
	{ .name = "amdgpu:" #symbol, .object = (void **)&bound_##symbol },
#include "amdgpu_symbols.h"
};

int amdgpu_bind(unsigned long (*lookup)(const char *name), const char **missing)
{
	const struct binding *binding;
	unsigned long address;

	for (binding = bindings; binding < bindings + ARRAY_SIZE(bindings); binding++) {
		address = lookup(binding->name);
		/* clang takes a structure of one member apart; this is the member, at its place. */
		if (!address && binding->object == (void **)&bound_procfs)
			address = lookup("amdgpu:procfs.0");
		if (!address) {
			*missing = binding->name;
			return -ENOENT;
		}
		if (binding->object)
			*binding->object = (void *)address;
		else
			__static_call_update(binding->key, binding->trampoline, (void *)address);
	}
	return 0;
}
