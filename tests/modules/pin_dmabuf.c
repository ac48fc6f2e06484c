// SPDX-License-Identifier: GPL-2.0-only
/*
 * pin_dmabuf: a driver that has a dma-buf's memory and cannot follow it when it moves, so that the
 * memory is pinned. The file of debugfs takes
 *
 *   look FD   only keeps the dma-buf
 *   pin FD    maps it for a device as well, until
 *   unpin     is written
 *
 * and says of the dma-buf that was named last whether somebody is asked before the memory moves
 * (`guarded`, or `unguarded`), and whether the exporter's buffer tells the importers (`tells`, or
 * `silent`).
 */
#include <linux/debugfs.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/platform_device.h>

#include <drm/drm_gem.h>

static struct platform_device *device;
static struct dma_buf *dmabuf;
static struct dma_buf_attachment *attachment;
static struct sg_table *pages;
static DEFINE_MUTEX(lock);

static void unpin(void)
{
	if (!attachment)
		return;
	dma_buf_unmap_attachment_unlocked(attachment, pages, DMA_BIDIRECTIONAL);
	dma_buf_detach(dmabuf, attachment);
	attachment = NULL;
}

static void forget(void)
{
	unpin();
	if (dmabuf)
		dma_buf_put(dmabuf);
	dmabuf = NULL;
}

static int look(int fd)
{
	struct dma_buf *named = dma_buf_get(fd);

	if (IS_ERR(named))
		return PTR_ERR(named);
	forget();
	dmabuf = named;
	return 0;
}

static int pin(int fd)
{
	struct dma_buf_attachment *made;
	int ret = look(fd);

	if (ret)
		return ret;
	made = dma_buf_attach(dmabuf, &device->dev);
	if (IS_ERR(made))
		return PTR_ERR(made);
	pages = dma_buf_map_attachment_unlocked(made, DMA_BIDIRECTIONAL);
	if (IS_ERR(pages)) {
		dma_buf_detach(dmabuf, made);
		return PTR_ERR(pages);
	}
	attachment = made;
	return 0;
}

static int obey(const char *order)
{
	int fd;

	if (sscanf(order, "look %d", &fd) == 1)
		return look(fd);
	if (sscanf(order, "pin %d", &fd) == 1)
		return pin(fd);
	if (strcmp(order, "unpin"))
		return -EINVAL;
	unpin();
	return 0;
}

static ssize_t pin_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	char text[32];
	int ret;

	if (size >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, size))
		return -EFAULT;
	text[size] = 0;
	mutex_lock(&lock);
	ret = obey(text);
	mutex_unlock(&lock);
	return ret ?: size;
}

static ssize_t pin_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	char text[32] = "nothing\n";

	mutex_lock(&lock);
	if (dmabuf) {
		struct drm_gem_object *object = dmabuf->priv;
		bool idle = dma_resv_test_signaled(dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP);

		snprintf(text, sizeof(text), "%s %s\n", idle ? "unguarded" : "guarded",
			 READ_ONCE(object->dma_buf) == dmabuf ? "tells" : "silent");
	}
	mutex_unlock(&lock);
	return simple_read_from_buffer(to, size, at, text, strlen(text));
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.write = pin_write,
	.read = pin_read,
};

static struct dentry *entry;

static int __init pin_dmabuf_init(void)
{
	int ret;

	device = platform_device_register_simple("pin_dmabuf", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(device))
		return PTR_ERR(device);
	ret = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));
	if (ret) {
		platform_device_unregister(device);
		return ret;
	}
	entry = debugfs_create_file("pin_dmabuf", 0600, NULL, NULL, &operations);
	return 0;
}
module_init(pin_dmabuf_init);

static void __exit pin_dmabuf_exit(void)
{
	debugfs_remove(entry);
	forget();
	platform_device_unregister(device);
}
module_exit(pin_dmabuf_exit);

MODULE_DESCRIPTION("Pins a dma-buf's memory, for tests");
MODULE_IMPORT_NS("DMA_BUF");
MODULE_LICENSE("GPL");
