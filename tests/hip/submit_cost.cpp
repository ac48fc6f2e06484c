// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Submits barrier packets through ROCr, as its manual says, and through kfd_aql::Ring; for
// callgrind, which counts the instructions of rocr_submit and kfd_submit.
#include <hsa/hsa.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Ring;
extern "C" Ring *kfd_ring(void *packets, uint64_t capacity, uint64_t *write, uint64_t *read,
			  uint64_t *doorbell);
extern "C" uint64_t kfd_submit(const Ring *ring, const void *packet);

static void check(hsa_status_t status, const char *what)
{
	if (status != HSA_STATUS_SUCCESS && status != HSA_STATUS_INFO_BREAK) {
		std::fprintf(stderr, "%s: %x\n", what, status);
		std::exit(1);
	}
}

extern "C" __attribute__((noinline))
uint64_t rocr_submit(hsa_queue_t *queue, const hsa_barrier_and_packet_t *packet)
{
	uint64_t index = hsa_queue_add_write_index_scacq_screl(queue, 1);

	while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size)
		;
	auto *packets = static_cast<hsa_barrier_and_packet_t *>(queue->base_address);
	auto *place = packets + (index & (queue->size - 1));
	std::memcpy(reinterpret_cast<char *>(place) + 4,
		    reinterpret_cast<const char *>(packet) + 4, 60);
	__atomic_store_n(reinterpret_cast<uint32_t *>(place), packet->header, __ATOMIC_RELEASE);
	hsa_signal_store_screlease(queue->doorbell_signal, index);
	return index;
}

static hsa_status_t find(hsa_agent_t agent, void *data)
{
	hsa_device_type_t type;

	check(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type), "hsa_agent_get_info");
	if (type != HSA_DEVICE_TYPE_GPU)
		return HSA_STATUS_SUCCESS;
	*static_cast<hsa_agent_t *>(data) = agent;
	return HSA_STATUS_INFO_BREAK;
}

int main()
{
	const int count = 1000, size = 1024;
	hsa_barrier_and_packet_t packet = {};
	static hsa_barrier_and_packet_t ours[size] __attribute__((aligned(64)));
	static uint64_t write, read, doorbell;
	hsa_agent_t agent = {};
	hsa_queue_t *queue;

	check(hsa_init(), "hsa_init");
	check(hsa_iterate_agents(find, &agent), "hsa_iterate_agents");
	check(hsa_queue_create(agent, size, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, 0, 0, &queue),
	      "hsa_queue_create");
	packet.header =
		HSA_PACKET_TYPE_BARRIER_AND | 1 << HSA_PACKET_HEADER_BARRIER | 2 << 9 | 2 << 11;
	Ring *ring = kfd_ring(ours, size, &write, &read, &doorbell);
	for (int i = 0; i < count; i++) {
		rocr_submit(queue, &packet);
		kfd_submit(ring, &packet);
	}
	std::printf("submitted %d through each; ours %llu\n", count, (unsigned long long)write);
	return write != count || doorbell != count - 1;
}
