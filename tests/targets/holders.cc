// Blocks that are held in every native way. Prints `NAME ADDRESS` for each, then `ready`, and waits
// for the end of standard input. Lost blocks have sizes of their own, for LeakSanitizer's report.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <semaphore.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

extern "C" __attribute__((weak)) void __lsan_do_leak_check();

#define OUT_OF_LINE __attribute__((noinline, noclone))

static void *block(const char *name, size_t size = 100) {
	void *at = malloc(size);
	printf("%s %p\n", name, at);
	return at;
}

struct Node {
	Node *next;
	long number;
};

struct Tree {
	Tree *left, *right;
	void *held;
};

struct Base {
	virtual ~Base() = default;
	long number = 0;
};

struct Session : Base {
	void *held = nullptr;
};

void *global_array[16];
static Node *linked_list;
std::map<long, void *> by_number;
std::unordered_map<long, void *> by_hash;
std::vector<Session *> sessions;
std::shared_ptr<Session> shared;
static Tree *tree;
uintptr_t tagged;
void **pool;
thread_local void *in_tls;

static std::atomic<int> waiting;
static sem_t never;

static void wait_forever() {
	waiting++;
	sem_wait(&never);
}

OUT_OF_LINE static void serve() {
	void *volatile on_stack = block("stack");
	wait_forever();
	free(on_stack);
}

// Has the only pointer in a register while it waits for a signal that never comes.
OUT_OF_LINE static void in_register() {
	void *held = block("register");
	waiting++;
#if defined(__x86_64__)
	__asm__ volatile("movq %0, %%r12\n\t"
			 "xorl %k0, %k0\n\t"
			 "1: movl $34, %%eax\n\t" // pause(2)
			 "syscall\n\t"
			 "jmp 1b"
			 : "+b"(held)
			 :
			 : "r12", "rax", "rcx", "r11", "memory", "cc");
#elif defined(__aarch64__)
	__asm__ volatile("mov x19, %0\n\t"
			 "mov %0, xzr\n\t"
			 "1: mov x0, xzr\n\t" // ppoll(2) of nothing
			 "mov x1, xzr\n\t"
			 "mov x2, xzr\n\t"
			 "mov x3, xzr\n\t"
			 "mov x8, #73\n\t"
			 "svc 0\n\t"
			 "b 1b"
			 : "+r"(held)
			 :
			 : "x0", "x1", "x2", "x3", "x8", "x19", "memory", "cc");
#else
#error "unknown architecture"
#endif
}

static void lose() {
	block("lost", 1001);
	Node *first = static_cast<Node *>(block("lost-chain", 1002));
	first->next = static_cast<Node *>(block("lost-indirectly", 1003));
	Node *cycle = static_cast<Node *>(block("lost-cycle", 1004));
	cycle->next = static_cast<Node *>(block("lost-cycle-other", 1005));
	cycle->next->next = cycle;
	void *freed[64];
	for (void *&one : freed) one = malloc(1006);
	// The freed block still contains the pointer, but holds nothing.
	void **stale = static_cast<void **>(malloc(1007));
	stale[10] = block("held-by-freed", 1008);
	free(stale);
	for (void *one : freed) free(one);
}

OUT_OF_LINE static void hold() {
	global_array[3] = block("global-array");
	for (long i = 0; i < 1000000; i++) {
		Node *node = static_cast<Node *>(malloc(sizeof(Node)));
		*node = {linked_list, i};
		if (i == 0) printf("linked-list %p\n", static_cast<void *>(node));
		linked_list = node;
	}
	for (long i = 0; i < 100; i++) by_number[i] = i == 50 ? block("map") : nullptr;
	for (long i = 0; i < 100; i++) by_hash[i] = i == 50 ? block("unordered-map") : nullptr;
	for (long i = 0; i < 100; i++) sessions.push_back(new Session);
	sessions[50]->held = block("vector");
	shared = std::make_shared<Session>();
	shared->held = block("shared-ptr");
	tree = new Tree{};
	tree->left = new Tree{nullptr, nullptr, block("tree")};
	tagged = reinterpret_cast<uintptr_t>(block("tagged")) ^ 0xffff000000000000;
	pool = static_cast<void **>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	pool[1000] = block("mmap-pool");
}

int main() {
	sem_init(&never, 0, 0);
	setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
	hold();
	std::thread([] { serve(); }).detach();
	std::thread([] {
		in_tls = block("tls");
		wait_forever();
	}).detach();
	std::thread([] { in_register(); }).detach();
	while (waiting < 3) usleep(1000);
	// Its stack stays, for the next thread, and may have pointers to the blocks.
	std::thread([] { lose(); }).join();
	printf("ready\n");
	// Only if it was built with LeakSanitizer, which then ends it.
	if (__lsan_do_leak_check) __lsan_do_leak_check();
	char byte;
	while (read(0, &byte, 1) > 0) {}
	_exit(0);
}
