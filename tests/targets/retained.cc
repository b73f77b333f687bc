// Blocks that are kept in known ways. Prints `NAME BYTES BLOCKS ADDRESS` of each, with the sizes that malloc says, then
// `ready`, and waits for the end of standard input.

#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <unistd.h>

#define OUT_OF_LINE __attribute__((noinline, noclone))

struct Node {
	Node *next;
	long number[3];
};

void **pool;
Node *chain;
void **left_of_two, **right_of_two;
void **outer;

static size_t bytes, blocks;

static void *block(size_t size) {
	void *at = malloc(size);
	bytes += malloc_usable_size(at);
	blocks++;
	return at;
}

static void **array(size_t len, size_t size) {
	void **at = static_cast<void **>(block(len * sizeof(void *)));
	for (size_t i = 0; i < len; i++) at[i] = size ? block(size) : nullptr;
	return at;
}

static void done(const char *name, void *at) {
	printf("%s %zu %zu %p\n", name, bytes, blocks, at);
	bytes = blocks = 0;
}

OUT_OF_LINE static void hold() {
	pool = array(2000, 5000);
	done("pool", pool);
	for (long i = 0; i < 50000; i++) {
		Node *node = static_cast<Node *>(block(sizeof(Node)));
		*node = {chain, {i}};
		chain = node;
	}
	done("chain", chain);
	// Neither has the blocks alone.
	left_of_two = array(1000, 0);
	done("left_of_two", left_of_two);
	right_of_two = array(1000, 0);
	done("right_of_two", right_of_two);
	for (long i = 0; i < 1000; i++) left_of_two[i] = right_of_two[i] = block(3000);
	done("both", left_of_two[0]);
	// A container in one that has parts of its own.
	outer = array(500, 2000);
	void *lost = outer[0];
	outer[0] = array(500, 6000);
	bytes -= malloc_usable_size(lost);
	blocks--;
	done("outer", outer);
	void **inner = static_cast<void **>(outer[0]);
	bytes = 0;
	for (long i = 0; i < 500; i++) bytes += malloc_usable_size(inner[i]);
	bytes += malloc_usable_size(inner);
	blocks = 501;
	done("inner", inner);
	bytes = malloc_usable_size(lost);
	blocks = 1;
	done("lost", lost);
}

// Overwrites values that hold() left on the stack.
OUT_OF_LINE static void clear() {
	volatile long words[1 << 12];
	for (volatile long &word : words) word = 0;
}

int main() {
	setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
	hold();
	clear();
	printf("ready\n");
	char byte;
	while (read(0, &byte, 1) > 0) {}
}
