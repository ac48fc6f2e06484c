/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that the module is built for, for the files that are compiled
 * with amdgpu's headers: one name for each, whatever this kernel's amdgpu calls it. See
 * `features`.
 */
#ifndef AMDKFD_COMPAT_H
#define AMDKFD_COMPAT_H

#include "features_generated.h"

/* More functions for amdgpu_symbols.h. */
#ifdef HAVE_MAP_BO_TO_KERNEL
#define COMPAT_FUNCTIONS					\
	FUNCTION(amdgpu_amdkfd_gpuvm_map_bo_to_kernel)		\
	FUNCTION(amdgpu_amdkfd_gpuvm_unmap_bo_from_kernel)
#else
#define COMPAT_FUNCTIONS					\
	FUNCTION(amdgpu_amdkfd_gpuvm_map_gtt_bo_to_kernel)	\
	FUNCTION(amdgpu_amdkfd_gpuvm_unmap_gtt_bo_from_kernel)
#endif

/* Maps a buffer of the GTT for the processor; and undoes it. */
#ifdef HAVE_MAP_BO_TO_KERNEL
#define compat_map_gtt_bo_to_kernel(mem, cpu, size)			\
	amdgpu_call(amdgpu_amdkfd_gpuvm_map_bo_to_kernel)(mem, cpu, size, AMDGPU_GEM_DOMAIN_GTT)
#define compat_unmap_gtt_bo_from_kernel(mem)				\
	amdgpu_call(amdgpu_amdkfd_gpuvm_unmap_bo_from_kernel)(mem)
#else
#define compat_map_gtt_bo_to_kernel(mem, cpu, size)			\
	amdgpu_call(amdgpu_amdkfd_gpuvm_map_gtt_bo_to_kernel)(mem, cpu, size)
#define compat_unmap_gtt_bo_from_kernel(mem)				\
	amdgpu_call(amdgpu_amdkfd_gpuvm_unmap_gtt_bo_from_kernel)(mem)
#endif

/* Buffers in VRAM take multiples of it. Where amdgpu keeps the figure to itself it is the same. */
#ifndef VRAM_AVAILABILITY_ALIGN
#define VRAM_AVAILABILITY_ALIGN (1 << 21)
#endif

/* A job with room for @size bytes of packets. */
#ifdef HAVE_JOB_ALLOC_ENDS_WITH_JOB
#define compat_job_alloc_with_ib(adev, entity, size, id, job)			\
	amdgpu_call(amdgpu_job_alloc_with_ib)(adev, entity, AMDGPU_FENCE_OWNER_UNDEFINED, size,	\
					      AMDGPU_IB_POOL_DELAYED, id, job)
#else
#define compat_job_alloc_with_ib(adev, entity, size, id, job)			\
	amdgpu_call(amdgpu_job_alloc_with_ib)(adev, entity, AMDGPU_FENCE_OWNER_UNDEFINED, size,	\
					      AMDGPU_IB_POOL_DELAYED, job, id)
#endif

/* Whether the GPU has a peak tensor limiter. */
#ifdef HAVE_PTL_SUPPORTED_STATE
#define compat_ptl_supported(ptl) ((ptl)->hw_supported_state == AMDGPU_PTL_HW_SUPPORTED)
#else
#define compat_ptl_supported(ptl) ((ptl)->hw_supported)
#endif

#endif
