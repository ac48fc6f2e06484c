/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the C files of the bridge share of amdgpu's queues for clearing and moving memory.
 */
#ifndef AMDKFD_BRIDGE_ENGINES_H
#define AMDKFD_BRIDGE_ENGINES_H

#include <linux/types.h>

struct amdgpu_device;
struct amdgpu_ring;
struct bridge_engines;
struct drm_sched_entity;

/*
 * Whether a job of it has failed: amdgpu cancels all that come after it (amdgpu_job_prepare_job).
 * Never sleeps.
 */
bool bridge_entity_has_failed(struct drm_sched_entity *entity);

/*
 * A device's, as long as it is served, or NULL. distrusted: VRAM that amdgpu calls cleared may not
 * be.
 */
struct bridge_engines *bridge_engines_of(const struct amdgpu_device *adev);
bool bridge_engines_distrusted(const struct bridge_engines *engines);

/* bridge_engines_heal(), and bridge_engines_heal_soon(), of a device that may be a stranger's. */
void bridge_engines_heal_of(struct amdgpu_device *adev);
void bridge_engines_heal_soon_of(struct amdgpu_device *adev);

/*
 * Before amdgpu_ring_backup_unprocessed_commands(): a ring is about to be reset alone. What a queue
 * for clearing and moving memory has in it may get an error that the queue itself never shows.
 */
void bridge_ring_reset(struct amdgpu_ring *ring);

#endif
