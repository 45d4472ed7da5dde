/*
 * Writes the C side's wire format of the examples in callbuf's golden files: golden packet | hello | map. The ring is
 * included as source, since an example has numbers that the library would never send.
 */
#include <stdio.h>

#include "../../libcuda/core/ring.c"

struct process process;
_Thread_local struct thread thread __attribute__((tls_model("initial-exec")));
void thread_register(void) {}
CUresult process_refusal(void) { return CUDA_ERROR_UNKNOWN; }
CUresult process_check_alive(void) { return CUDA_SUCCESS; }
void process_notify_worker(void) {}
CUresult process_result(uint32_t r) { return (CUresult)r; }

static struct segment_header header;
static struct ring_slot ring[2 * PACKET_SLOTS];

int main(int argc, char **argv)
{
	static const char payload[] =
		"a payload that needs a second slot because it is longer than the ninety-six bytes that the first one carries";
	const char *what = argc > 1 ? argv[1] : "";
	if (strcmp(what, "packet") == 0) {
		struct packet p = {
			.op = 0x1234, .context = 0x01020304, .stream = 0x1122334455667788, .fixed = payload, .fixedBytes = 10,
			.tail = payload + 10, .tailBytes = sizeof payload - 1 - 10,
		};
		process.header = &header;
		process.ring = ring;
		process.ringSlots = 2 * PACKET_SLOTS;
		bool woke;
		uint32_t end;
		if (send(&p, PACKET_WANTS_REPLY, 0x21, 0x6b7a8999, &woke, &end) != CUDA_SUCCESS)
			return 1;
		fwrite(ring, 1, 2 * SLOT_BYTES, stdout);
	} else if (strcmp(what, "hello") == 0) {
		struct hello h = {.magic = HELLO_MAGIC, .version = SEGMENT_VERSION, .features = 5};
		fwrite(&h, 1, sizeof h, stdout);
	} else if (strcmp(what, "map") == 0) {
		struct map_request m = {.magic = MAP_MAGIC, .arenaIndex = 1, .deviceIndex = NO_WINDOW};
		fwrite(&m, 1, sizeof m, stdout);
	} else {
		return 2;
	}
	return 0;
}
