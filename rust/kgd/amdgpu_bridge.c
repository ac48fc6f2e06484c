// SPDX-License-Identifier: GPL-2.0
#include <linux/types.h>
#include "amdgpu.h"
#include "amdgpu_amdkfd.h"
#include "bridge.h"
