/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * amdgpu's symbols, bound to this module: those of amdgpu_symbols.h. They may be used once
 * amdgpu_bind() has succeeded. For the C files that are compiled with amdgpu's headers.
 */
#ifndef AMDKFD_AMDGPU_BIND_H
#define AMDKFD_AMDGPU_BIND_H

#include <linux/static_call.h>

#include "amdgpu.h"
#include "amdgpu_amdkfd.h"
#include "amdgpu_dma_buf.h"
#include "amdgpu_doorbell.h"
#include "amdgpu_dpm.h"
#include "amdgpu_reset.h"
#include "amdgpu_xgmi.h"
#include "kfd_priv.h"
#include <drm/ttm/ttm_bo.h>

#include "compat.h"

/* amdgpu.h names amdgpu. */
#undef pr_fmt
#define pr_fmt(fmt) "amdkfd: " fmt

/* Declared in the C files of amdgpu that use them. */
extern const char *amdgpu_asic_name[];
extern const struct kfd2kgd_calls aldebaran_kfd2kgd;
extern const struct kfd2kgd_calls arcturus_kfd2kgd;
extern const struct kfd2kgd_calls gc_9_4_3_kfd2kgd;
extern const struct kfd2kgd_calls gfx_v10_3_kfd2kgd;
extern const struct kfd2kgd_calls gfx_v10_kfd2kgd;
extern const struct kfd2kgd_calls gfx_v9_kfd2kgd;
extern struct pci_driver amdgpu_kms_pci_driver;
extern struct workqueue_struct *kfd_process_wq;
/* Declared in drm_internal.h. */
void drm_gem_object_handle_put_unlocked(struct drm_gem_object *obj);
/*
 * Static in amdgpu_amdkfd_gpuvm.c, amdgpu_dma_buf.c, amdgpu_job.c, amdgpu_ttm.c, kfd_chardev.c,
 * kfd_device.c and kfd_process.c.
 */
void amdgpu_amdkfd_restore_userptr_worker(struct work_struct *work);
struct sg_table *amdgpu_dma_buf_map(struct dma_buf_attachment *attach, enum dma_data_direction dir);
enum drm_gpu_sched_stat amdgpu_job_timedout(struct drm_sched_job *job);
int amdgpu_bo_move(struct ttm_buffer_object *bo, bool evict, struct ttm_operation_ctx *ctx,
		   struct ttm_resource *new_mem, struct ttm_place *hop);
void amdgpu_evict_flags(struct ttm_buffer_object *bo, struct ttm_placement *placement);
extern int kfd_char_dev_major;
extern int kfd_locked;
extern struct {
	struct kobject *kobj;
} procfs;

#define FUNCTION(name) DECLARE_STATIC_CALL(bound_##name, name);
#define KERNEL_FUNCTION(name) FUNCTION(name)
#define DRM_FUNCTION(name) FUNCTION(name)
#define SCHED_FUNCTION(name) FUNCTION(name)
#define TTM_FUNCTION(name) FUNCTION(name)
#define OBJECT(name) extern typeof(name) *bound_##name;
#include "amdgpu_symbols.h"
#undef FUNCTION
#undef KERNEL_FUNCTION
#undef DRM_FUNCTION
#undef SCHED_FUNCTION
#undef TTM_FUNCTION
#undef OBJECT

/* amdgpu's function of that name. */
#define amdgpu_call(name) static_call(bound_##name)
/* amdgpu's object of that name. */
#define amdgpu_object(name) (*bound_##name)

/* Looks all symbols up; -ENOENT if one is missing. */
int amdgpu_bind(unsigned long (*lookup)(const char *name), const char **missing);

#endif
