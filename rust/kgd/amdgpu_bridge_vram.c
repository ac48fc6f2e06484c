// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: buffers in VRAM whose pages are device pages (struct page of the
 * device's pgmap, which C made), and the copies between them and system memory.
 */
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/delay.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "amdgpu_bind.h"
#include "amdgpu_job.h"
#include "amdgpu_res_cursor.h"
#include "bridge.h"
#include "bridge_engines.h"
#include "bridge_vm.h"
#include "bridge_vram.h"

struct bridge_vram {
	struct amdgpu_device *adev;
	struct amdgpu_bo *bo;
	struct eviction *eviction;
	u32 pages;
	atomic_t emptied;
};

/* What became of a job that has ended. */
static int result_of(struct dma_fence *fence)
{
	return min(dma_fence_get_status(fence), 0);
}

/* amdgpu gives a job of its copy engines 2 s, and then resets them. */
#define MOVE_TIMEOUT (10 * HZ)

/*
 * Until what was there before has been moved away. Under the reservation: nobody can move the
 * buffer meanwhile.
 */
static int wait_for_memory(struct amdgpu_bo *bo)
{
	struct dma_resv *resv = bo->tbo.base.resv;
	long ret;

	ret = dma_resv_wait_timeout(resv, DMA_RESV_USAGE_KERNEL, false, MOVE_TIMEOUT);
	if (ret < 0)
		return ret;
	if (!ret)
		return -ETIME;
	/* It was evicted already. */
	return bo->tbo.resource && bo->tbo.resource->mem_type == TTM_PL_VRAM ? 0 : -EAGAIN;
}

/* From here on the buffer stays where it is until the eviction's fence has signalled. */
static int settle(struct bridge_vram *vram)
{
	struct dma_resv *resv = vram->bo->tbo.base.resv;
	int ret;

	dma_resv_lock(resv, NULL);
	ret = wait_for_memory(vram->bo);
	if (!ret)
		ret = dma_resv_reserve_fences(resv, 1);
	if (!ret)
		dma_resv_add_fence(resv, &vram->eviction->base, DMA_RESV_USAGE_BOOKKEEP);
	dma_resv_unlock(resv);
	return ret;
}

static int create_bo(struct amdgpu_device *adev, s32 partition, u32 pages, struct amdgpu_bo **out)
{
	struct amdgpu_bo_param param = {
		.size = (u64)pages << PAGE_SHIFT,
		.byte_align = PAGE_SIZE,
		.domain = AMDGPU_GEM_DOMAIN_VRAM,
		.flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS | AMDGPU_GEM_CREATE_DISCARDABLE,
		.type = ttm_bo_type_device,
		.xcp_id_plus1 = partition + 1,
	};
	struct amdgpu_bo_user *user;
	s8 counted = max(partition, 0);
	int ret;

	/* As C does: what processes may have must suffice, and is not used up by this. */
	ret = amdgpu_call(amdgpu_amdkfd_reserve_mem_limit)(adev, param.size,
							   KFD_IOC_ALLOC_MEM_FLAGS_VRAM, counted);
	if (ret)
		return ret;
	ret = amdgpu_call(amdgpu_bo_create_user)(adev, &param, &user);
	amdgpu_call(amdgpu_amdkfd_unreserve_mem_limit)(adev, param.size,
						       KFD_IOC_ALLOC_MEM_FLAGS_VRAM, counted);
	if (!ret)
		*out = &user->bo;
	return ret;
}

/* Room is made for it as long as that takes: not within drm_dev_enter(). */
static int make_vram(struct bridge_vram *vram, s32 partition)
{
	int ret;

	if (bridge_is_unplugged(vram->adev))
		return -ENODEV;
	ret = create_bo(vram->adev, partition, vram->pages, &vram->bo);
	if (ret)
		return ret;
	ret = settle(vram);
	if (ret)
		amdgpu_call(amdgpu_bo_unref)(&vram->bo);
	return ret;
}

int bridge_vram_alloc(struct amdgpu_device *adev, s32 partition, u32 pages, void *cookie,
		      struct bridge_vram **out)
{
	struct bridge_vram *vram;
	int ret = -ENOMEM;

	if (adev->kfd.pgmap.type != MEMORY_DEVICE_PRIVATE)
		return -EOPNOTSUPP;
	if (!pages || pages > BRIDGE_MAX_COPY)
		return -EINVAL;
	/* The hooks must be there as long as its pages are out. */
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;
	vram = kzalloc(sizeof(*vram), GFP_KERNEL);
	if (!vram)
		goto put;
	vram->adev = adev;
	vram->pages = pages;
	vram->eviction = eviction_new(cookie);
	if (!vram->eviction)
		goto free;
	ret = make_vram(vram, partition);
	if (ret)
		goto end;
	amdgpu_call(drm_dev_get)(adev_to_drm(adev));
	*out = vram;
	return 0;
end:
	bridge_vram_is_empty(vram);
	dma_fence_put(&vram->eviction->base);
free:
	kfree(vram);
put:
	module_put(THIS_MODULE);
	return ret;
}

/* The buffer is settled: it has the same memory as long as its pages may be used. */
u32 bridge_vram_run(const struct bridge_vram *vram, u32 index, unsigned long *first)
{
	u64 start = vram->adev->kfd.pgmap.range.start;
	struct amdgpu_res_cursor cursor;

	if (index >= vram->pages)
		return 0;
	amdgpu_res_first(vram->bo->tbo.resource, (u64)index << PAGE_SHIFT,
			 (u64)(vram->pages - index) << PAGE_SHIFT, &cursor);
	*first = (start + cursor.start) >> PAGE_SHIFT;
	return cursor.size >> PAGE_SHIFT;
}

void bridge_vram_is_empty(struct bridge_vram *vram)
{
	/* Nobody is to be told of what has been done. */
	eviction_forget(vram->eviction);
	if (!atomic_xchg(&vram->emptied, 1))
		eviction_put_user(vram->eviction);
}

void bridge_vram_free(struct bridge_vram *vram)
{
	struct drm_device *drm = adev_to_drm(vram->adev);

	bridge_vram_is_empty(vram);
	dma_fence_put(&vram->eviction->base);
	amdgpu_call(amdgpu_bo_unref)(&vram->bo);
	amdgpu_call(drm_dev_put)(drm);
	kfree(vram);
	module_put(THIS_MODULE);
}

/*
 * A copy: two jobs of one of amdgpu's queues for moving memory, and what they use meanwhile. Or
 * none, if the processor has done it.
 */
struct bridge_copy {
	struct amdgpu_device *adev;
	struct amdgpu_bo *bo;
	struct eviction *eviction;	/* the memory stays the buffer's until the copy has ended */
	struct dma_fence *mapped;	/* the job that fills the window */
	struct dma_fence *copied;
	struct delayed_work later;
	struct list_head link;		/* in copies */
	struct list_head late;		/* in late_copies, once it was given up */
	struct pci_dev *pdev;		/* a name: the device's own reference may be gone */
	bool given_up;			/* it did not end in time. Under copies_lock */
	bool to_vram;
	u32 count;			/* pages that are mapped */
	dma_addr_t address[BRIDGE_MAX_COPY];
	struct page *page[BRIDGE_MAX_COPY];
	u64 vram[BRIDGE_MAX_COPY];	/* bytes from the begin of VRAM */
};

static enum dma_data_direction direction(const struct bridge_copy *copy)
{
	return copy->to_vram ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
}

/*
 * System memory stays allocated until the copy has ended: also what is read, for a copy that was
 * given up may read it when its owner has long let it go.
 */
static int map_pages(struct bridge_copy *copy, const struct bridge_copy_page *pages, u32 count)
{
	struct device *dev = copy->adev->dev;
	u64 start = copy->adev->kfd.pgmap.range.start;
	dma_addr_t address;
	u32 i;

	for (i = 0; i < count; i++) {
		copy->page[i] = pfn_to_page(pages[i].system);
		copy->vram[i] = ((u64)pages[i].device << PAGE_SHIFT) - start;
		address = dma_map_page(dev, copy->page[i], 0, PAGE_SIZE, direction(copy));
		if (dma_mapping_error(dev, address))
			return -ENOMEM;
		copy->address[i] = address;
		copy->count++;
		get_page(copy->page[i]);
	}
	return 0;
}

static void unmap_pages(struct bridge_copy *copy)
{
	struct device *dev = copy->adev->dev;
	/* Where addresses are those of memory, and none of a bounce buffer, nothing is undone. */
	bool undo = dma_need_unmap(dev);
	u32 i;

	for (i = 0; i < copy->count; i++) {
		if (undo)
			dma_unmap_page(dev, copy->address[i], PAGE_SIZE, direction(copy));
		put_page(copy->page[i]);
	}
}

/* How many pages from the one at @first lie one after the other in VRAM and fit into a packet. */
static u32 run_at(const struct bridge_copy *copy, u32 first)
{
	u32 most = copy->adev->mman.buffer_funcs->copy_max_bytes >> PAGE_SHIFT;
	u32 i = first + 1;

	while (i < copy->count && i - first < most &&
	       copy->vram[i] == copy->vram[i - 1] + PAGE_SIZE)
		i++;
	return i - first;
}

static struct amdgpu_ring *mover(struct amdgpu_device *adev)
{
	return to_amdgpu_ring(adev->mman.buffer_funcs_scheds[0]);
}

/* Bytes of @packets copy packets, as a ring wants their end aligned. */
static u32 packets_size(struct amdgpu_device *adev, u32 packets)
{
	return ALIGN(packets * adev->mman.buffer_funcs->copy_num_dw, 8) * sizeof(u32);
}

/*
 * Page table entries of the system pages. amdgpu_gart_map() would write none, and say nothing, once
 * the device is unplugged, which may be since begin_copy() has looked: what lies there would be
 * used.
 */
static void write_entries(const struct bridge_copy *copy, u64 flags, void *to)
{
	u64 mask = copy->adev->gmc.pte_addr_mask, *entry = to;
	dma_addr_t address;
	u32 i, part;

	for (i = 0; i < copy->count; i++) {
		address = copy->address[i];
		for (part = 0; part < AMDGPU_GPU_PAGES_IN_CPU_PAGE; part++) {
			*entry++ = (address & mask) | flags;
			address += AMDGPU_GPU_PAGE_SIZE;
		}
	}
}

/* Shows the system pages in the entity's window of the GART. */
static int fill_window(struct bridge_copy *copy, struct amdgpu_ttm_buffer_entity *entity)
{
	u64 flags = AMDGPU_PTE_VALID | AMDGPU_PTE_READABLE | AMDGPU_PTE_SYSTEM |
		    AMDGPU_PTE_SNOOPED | copy->adev->gart.gart_pte_flags;
	u32 bytes = copy->count * AMDGPU_GPU_PAGES_IN_CPU_PAGE * sizeof(u64);
	struct amdgpu_device *adev = copy->adev;
	u32 code = packets_size(adev, 1);
	struct amdgpu_job *job;
	u64 table;
	int ret;

	ret = compat_job_alloc_with_ib(adev, &entity->base, code + bytes,
				       AMDGPU_KERNEL_JOB_ID_KFD_GART_MAP, &job);
	if (ret)
		return ret;
	if (!copy->to_vram)
		flags |= AMDGPU_PTE_WRITEABLE;
	table = amdgpu_call(amdgpu_bo_gpu_offset)(adev->gart.bo) +
		(entity->gart_window_offs[0] >> AMDGPU_GPU_PAGE_SHIFT) * sizeof(u64);
	amdgpu_emit_copy_buffer(adev, &job->ibs[0], job->ibs[0].gpu_addr + code, table, bytes, 0);
	amdgpu_ring_pad_ib(mover(adev), &job->ibs[0]);
	write_entries(copy, flags, &job->ibs[0].ptr[code / sizeof(u32)]);
	copy->mapped = amdgpu_call(amdgpu_job_submit)(job);
	return 0;
}

/* Copies between the window and VRAM. The translations of what the window showed are forgotten. */
static int copy_window(struct bridge_copy *copy, struct amdgpu_ttm_buffer_entity *entity)
{
	struct amdgpu_device *adev = copy->adev;
	u64 window = amdgpu_compute_gart_address(&adev->gmc, entity, 0);
	u64 start = amdgpu_call(amdgpu_ttm_domain_start)(adev, TTM_PL_VRAM);
	u32 i, run, packets = 0;
	struct amdgpu_job *job;
	u64 system, vram;
	int ret;

	for (i = 0; i < copy->count; i += run_at(copy, i))
		packets++;
	ret = compat_job_alloc_with_ib(adev, &entity->base, packets_size(adev, packets),
				       AMDGPU_KERNEL_JOB_ID_TTM_COPY_BUFFER, &job);
	if (ret)
		return ret;
	job->vm_pd_addr = amdgpu_call(amdgpu_gmc_pd_addr)(adev->gmc.pdb0_bo ?: adev->gart.bo);
	job->vm_needs_flush = true;
	for (i = 0; i < copy->count; i += run) {
		run = run_at(copy, i);
		system = window + ((u64)i << PAGE_SHIFT);
		vram = start + copy->vram[i];
		amdgpu_emit_copy_buffer(adev, &job->ibs[0], copy->to_vram ? system : vram,
					copy->to_vram ? vram : system, run << PAGE_SHIFT, 0);
	}
	amdgpu_ring_pad_ib(mover(adev), &job->ibs[0]);
	copy->copied = amdgpu_call(amdgpu_job_submit)(job);
	return 0;
}

/* Copies take turns among all entities that amdgpu takes jobs of. NULL: there is none. */
static struct amdgpu_ttm_buffer_entity *healthy_entity(struct amdgpu_mman *mman, u32 entities)
{
	struct amdgpu_ttm_buffer_entity *entity;
	u32 i, turn;

	for (i = 0; i < entities; i++) {
		turn = (u32)atomic_inc_return(&mman->next_move_entity) % entities;
		entity = &mman->move_entities[turn];
		if (!bridge_entity_has_failed(&entity->base))
			return entity;
	}
	return NULL;
}

/* The same, after those that have failed were looked after. */
static struct amdgpu_ttm_buffer_entity *next_entity(struct amdgpu_device *adev, u32 entities)
{
	struct amdgpu_ttm_buffer_entity *entity = healthy_entity(&adev->mman, entities);

	if (entity)
		return entity;
	bridge_engines_heal_of(adev);
	entity = healthy_entity(&adev->mman, entities);
	if (!entity)
		dev_warn_once(adev->dev,
			      "amdkfd: copies fail; the processor reads what is in VRAM still\n");
	return entity;
}

/*
 * The two jobs, one right after the other: under the entity's lock its window is ours, and what
 * comes later runs later.
 */
static int submit(struct bridge_copy *copy, struct amdgpu_ttm_buffer_entity *entity)
{
	int ret;

	mutex_lock(&entity->lock);
	ret = fill_window(copy, entity);
	if (!ret)
		ret = copy_window(copy, entity);
	mutex_unlock(&entity->lock);
	return ret;
}

/* Home only, as amdgpu moves its own buffers without jobs. It has ended when this returns. */
static int copy_by_processor(struct bridge_copy *copy, const struct bridge_copy_page *pages,
			     u32 count)
{
	int ret;

	if (copy->to_vram)
		return -ENODEV;
	ret = bridge_read_vram(copy->adev, pages, count);
	if (ret)
		return ret;
	copy->mapped = dma_fence_get_stub();
	copy->copied = dma_fence_get_stub();
	return 0;
}

static int start(struct bridge_copy *copy, const struct bridge_copy_page *pages, u32 count)
{
	struct amdgpu_mman *mman = &copy->adev->mman;
	struct amdgpu_ttm_buffer_entity *entity;
	u32 entities = READ_ONCE(mman->num_move_entities);
	int ret;

	/* While the device sleeps there are none. */
	if (!mman->buffer_funcs_enabled || !entities)
		return -ENODEV;
	if (!mover(copy->adev)->sched.ready)
		return amdgpu_call(amdgpu_in_reset)(copy->adev) ? -EAGAIN : -ENODEV;
	entity = next_entity(copy->adev, entities);
	if (!entity)
		return copy_by_processor(copy, pages, count);
	ret = map_pages(copy, pages, count);
	return ret ?: submit(copy, entity);
}

/*
 * The copies under way, of all devices. A device gets so many at a time: each has room in amdgpu's
 * pool for jobs (1 MiB, ib_pools in amdgpu_ib.c; at most 4.6 KiB a copy), and amdgpu waits for room
 * there without end. And it gets none as long as one has not ended that was given up: then its
 * engines are busy for long, or dead, and more of the same would use up the pool and keep pages.
 */
#define MOST_COPIES 64
static LIST_HEAD(copies);
static DEFINE_SPINLOCK(copies_lock);
static DECLARE_WAIT_QUEUE_HEAD(copies_ended);

static bool has_ended(struct bridge_copy *copy)
{
	return dma_fence_is_signaled(copy->mapped) && dma_fence_is_signaled(copy->copied);
}

/* Whether another copy may begin. -EIO: one was given up; -EBUSY: there are enough. */
static int may_begin(const struct amdgpu_device *adev)
{
	struct bridge_copy *other;
	unsigned int others = 0;

	list_for_each_entry(other, &copies, link) {
		if (other->adev != adev)
			continue;
		if (other->given_up && !has_ended(other))
			return -EIO;
		if (++others == MOST_COPIES)
			return -EBUSY;
	}
	return 0;
}

static int add_copy(struct bridge_copy *copy)
{
	int ret;

	guard(spinlock)(&copies_lock);
	ret = may_begin(copy->adev);
	if (!ret)
		list_add(&copy->link, &copies);
	return ret;
}

/* So long a copy waits for others to end: as long as each of them is waited for (kgd/owned). */
#define TURN_TIMEOUT (10 * HZ)

static int wait_for_turn(struct bridge_copy *copy)
{
	int ret;

	wait_event_timeout(copies_ended, (ret = add_copy(copy)) != -EBUSY, TURN_TIMEOUT);
	return ret == -EBUSY ? -EIO : ret;
}

static void end_turn(struct bridge_copy *copy)
{
	scoped_guard(spinlock, &copies_lock)
		list_del(&copy->link);
	wake_up(&copies_ended);
}

/* Those that were given up, until nothing is left of them. Under copies_lock. */
static LIST_HEAD(late_copies);

static void give_up_copy(struct bridge_copy *copy)
{
	scoped_guard(spinlock, &copies_lock) {
		copy->given_up = true;
		list_add(&copy->late, &late_copies);
	}
	/* Who waits for a turn need not wait for this one. */
	wake_up_all(&copies_ended);
}

static void release_copy(struct bridge_copy *copy)
{
	struct drm_device *drm = adev_to_drm(copy->adev);

	end_turn(copy);
	unmap_pages(copy);
	dma_fence_put(copy->mapped);
	dma_fence_put(copy->copied);
	eviction_put_user(copy->eviction);
	dma_fence_put(&copy->eviction->base);
	amdgpu_call(amdgpu_bo_unref)(&copy->bo);
	amdgpu_call(drm_dev_put)(drm);
}

static void free_copy(struct bridge_copy *copy)
{
	release_copy(copy);
	kvfree(copy);
}

static void free_later(struct work_struct *work);

/* A copy with all that it needs to go on alone, in its turn. */
static int new_copy(struct bridge_vram *vram, bool to_vram, bool wait, struct bridge_copy **out)
{
	struct bridge_copy *copy = kvzalloc(sizeof(*copy), GFP_KERNEL);
	int ret;

	if (!copy)
		return -ENOMEM;
	copy->adev = vram->adev;
	copy->pdev = vram->adev->pdev;
	copy->to_vram = to_vram;
	INIT_DELAYED_WORK(&copy->later, free_later);
	ret = wait ? wait_for_turn(copy) : add_copy(copy);
	if (ret)
		goto free;
	ret = -EBUSY;
	if (!atomic_inc_not_zero(&vram->eviction->users))
		goto end;
	dma_fence_get(&vram->eviction->base);
	copy->eviction = vram->eviction;
	copy->bo = amdgpu_call(amdgpu_bo_ref)(vram->bo);
	amdgpu_call(drm_dev_get)(adev_to_drm(copy->adev));
	*out = copy;
	return 0;
end:
	end_turn(copy);
free:
	kvfree(copy);
	return ret;
}

/* On a device that is not unplugged, and is not meanwhile. */
static int begin_copy(struct bridge_copy *copy, const struct bridge_copy_page *pages, u32 count)
{
	int idx, ret;

	/* One that was pulled out is not unplugged as yet. */
	if (pci_dev_is_disconnected(copy->adev->pdev) ||
	    !amdgpu_call(drm_dev_enter)(adev_to_drm(copy->adev), &idx))
		return -ENODEV;
	ret = start(copy, pages, count);
	amdgpu_call(drm_dev_exit)(idx);
	return ret;
}

int bridge_copy_begin(struct bridge_vram *vram, bool to_vram, bool wait,
		      const struct bridge_copy_page *pages, u32 count, struct bridge_copy **out)
{
	struct bridge_copy *copy;
	int ret;

	static_assert(BRIDGE_MAX_COPY <= AMDGPU_GTT_MAX_TRANSFER_SIZE >> PAGE_SHIFT);
	if (!count || count > BRIDGE_MAX_COPY)
		return -EINVAL;
	ret = new_copy(vram, to_vram, wait, &copy);
	if (ret)
		return ret;
	ret = begin_copy(copy, pages, count);
	if (ret)
		free_copy(copy);
	else
		*out = copy;
	return ret;
}

int bridge_copy_wait(struct bridge_copy *copy, u32 timeout_ms)
{
	long left = dma_fence_wait_timeout(copy->copied, false, msecs_to_jiffies(timeout_ms));

	if (left < 0)
		return left;
	if (!left)
		return -ETIME;
	return result_of(copy->mapped) ?: result_of(copy->copied);
}

/* How often it is looked whether a copy that did not end in time has ended. */
#define LATER (HZ / 10)

static void free_later(struct work_struct *work)
{
	struct bridge_copy *copy = container_of(work, struct bridge_copy, later.work);

	if (!has_ended(copy)) {
		schedule_delayed_work(&copy->later, LATER);
		return;
	}
	release_copy(copy);
	scoped_guard(spinlock, &copies_lock)
		list_del(&copy->late);
	wake_up_all(&copies_ended);
	kvfree(copy);
	atomic_dec(&vram_outliving);
	module_put(THIS_MODULE);
}

static bool has_late_copies(const struct pci_dev *pdev)
{
	struct bridge_copy *copy;

	guard(spinlock)(&copies_lock);
	list_for_each_entry(copy, &late_copies, late) {
		if (copy->pdev == pdev)
			return true;
	}
	return false;
}

/* amdgpu has ended all jobs of a device that it has left: what still goes on will not end soon. */
#define UNBOUND_TIMEOUT (5 * HZ)

void bridge_vram_unbound(const struct pci_dev *pdev)
{
	if (!wait_event_timeout(copies_ended, !has_late_copies(pdev), UNBOUND_TIMEOUT))
		pr_warn("%s: unbound, and copies of pages have not ended\n", pci_name(pdev));
}

void bridge_copy_end(struct bridge_copy *copy)
{
	if (has_ended(copy)) {
		free_copy(copy);
		return;
	}
	dev_warn(copy->adev->dev, "amdkfd: a copy of %u pages has not ended yet\n", copy->count);
	give_up_copy(copy);
	__module_get(THIS_MODULE);
	atomic_inc(&vram_outliving);
	schedule_delayed_work(&copy->later, LATER);
}

/*
 * TIMEOUT: none, for the module's text is about to go. Whoever still has one of the fences got it
 * from the reservation of a buffer that is gone, and lets it go when it has looked at it.
 */
void bridge_vram_drain(void)
{
	unsigned int waited = 0;

	while (atomic_read(&vram_outliving)) {
		msleep(10);
		if (++waited % 1000 == 0)
			pr_warn("waiting for %d fences to be let go\n",
				atomic_read(&vram_outliving));
	}
	/* The callbacks, and whoever has called one of our functions last, have returned then. */
	rcu_barrier();
	synchronize_rcu();
	synchronize_rcu_tasks();
}
