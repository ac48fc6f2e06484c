// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scheduler's entities by which a VM's page tables are written.
 */
#include <linux/dma-resv.h>
#include <linux/spinlock.h>

#include "amdgpu_bind.h"
#include "bridge_vm.h"

/*
 * Whoever gave a VM's entities their last job has them stopped for good when he closes the file
 * and is being killed (amdgpu_flush): mostly who opened it, for whom it was cleared. From then on
 * amdgpu leaves entries in place that it is asked to take out (amdgpu_vm_ready), and says 0: this
 * process's queues would go on with memory that is another's. With page tables that the CPU writes
 * nobody gives the VM a job from here on, so nobody is left to have them stopped; where they are,
 * amdgpu makes new ones as for VRAM that was lost, at the next call that validates the VM.
 */
void bridge_outlive_opener(struct amdgpu_vm *vm)
{
	struct drm_sched_entity *const entities[] = { &vm->immediate, &vm->delayed };
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	bool stopped = false;
	u32 i;

	if (!vm->use_cpu_for_update)
		return;
	dma_resv_lock(resv, NULL);
	for (i = 0; i < ARRAY_SIZE(entities); i++) {
		xchg(&entities[i]->last_user, NULL);
		spin_lock(&entities[i]->lock);
		stopped |= entities[i]->stopped;
		spin_unlock(&entities[i]->lock);
	}
	/* Of the number only the lower half counts but for this. */
	if (stopped)
		vm->generation ^= BIT_ULL(63);
	dma_resv_unlock(resv);
}
