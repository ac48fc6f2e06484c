// SPDX-License-Identifier: GPL-2.0-only
/*
 * pull_out: what a PCI device is like that was pulled out. It decodes no memory, masters no bus,
 * and the kernel knows that it is gone, as from a hot-plug port; whoever unbinds its driver now
 * does what the port's driver would do next. rmmod puts the device back in.
 *
 *   insmod pull_out.ko device=0000:00:02.0
 */
#include <linux/module.h>
#include <linux/pci.h>

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "the address of the device");

static struct pci_dev *pdev;
static u16 command;

static int __init pull_out_init(void)
{
	unsigned int domain, bus, slot, function;

	if (!device || sscanf(device, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	if (!pdev)
		return -ENODEV;
	pci_read_config_word(pdev, PCI_COMMAND, &command);
	pci_write_config_word(pdev, PCI_COMMAND,
			      command & ~(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER));
	WRITE_ONCE(pdev->error_state, pci_channel_io_perm_failure);
	return 0;
}
module_init(pull_out_init);

static void __exit pull_out_exit(void)
{
	WRITE_ONCE(pdev->error_state, pci_channel_io_normal);
	pci_write_config_word(pdev, PCI_COMMAND, command);
	pci_dev_put(pdev);
}
module_exit(pull_out_exit);

MODULE_DESCRIPTION("Pulls a PCI device out, for tests");
MODULE_LICENSE("GPL");
