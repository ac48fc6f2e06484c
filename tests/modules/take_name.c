// SPDX-License-Identifier: GPL-2.0-only
/*
 * take_name: takes the name of the device class "kfd". The C amdkfd of an amdgpu that is loaded
 * meanwhile cannot register its own, and amdgpu's initialisation fails.
 */
#include <linux/device/class.h>
#include <linux/module.h>

static struct class named = { .name = "kfd" };

static int __init take_name_init(void)
{
	return class_register(&named);
}
module_init(take_name_init);

static void __exit take_name_exit(void)
{
	class_unregister(&named);
}
module_exit(take_name_exit);

MODULE_DESCRIPTION("Takes the name of kfd's device class, for tests");
MODULE_LICENSE("GPL");
