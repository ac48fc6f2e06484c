// SPDX-License-Identifier: GPL-2.0
/*
 * take_name: takes the name "amdgpu" on the PCI bus, as a driver of no device. amdgpu, loaded meanwhile, cannot register
 * itself, and its initialisation fails at its very end.
 */
#include <linux/module.h>
#include <linux/pci.h>

static const struct pci_device_id none[] = { { } };

static struct pci_driver named = {
	.name = "amdgpu",
	.id_table = none,
};
module_pci_driver(named);

MODULE_DESCRIPTION("Takes amdgpu's name, for tests");
MODULE_LICENSE("GPL");
