// Allocates below generated code that keeps frame pointers and is in a perf map.
//   generated executable   the memory is mapped executable
//   generated protected    it becomes so by mprotect
// Runs until its input ends. Prints "ready" when it has called the code for the first time.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 4096
#define BLOCK 111

// push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret
static const unsigned char CODE[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

static void *volatile block;

__attribute__((noinline)) static void allocate(void) {
	block = malloc(BLOCK);
	free(block);
}

__attribute__((noinline)) static void run(void (*generated)(void (*)(void))) {
	generated(allocate);
	__asm__ volatile("");
}

int main(int count, char **arguments) {
	if (count != 2) return 2;
	int executable = strcmp(arguments[1], "executable") == 0;
	int protection = PROT_READ | PROT_WRITE | (executable ? PROT_EXEC : 0);
	void *code = mmap(NULL, SIZE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED) return 3;
	memcpy(code, CODE, sizeof CODE);
	if (!executable && mprotect(code, SIZE, PROT_READ | PROT_EXEC) != 0) return 4;

	char path[64];
	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(path, "w");
	if (map == NULL) return 5;
	fprintf(map, "%lx %zx generated_function\n", (unsigned long)code, sizeof CODE);
	fclose(map);

	void (*generated)(void (*)(void)) = (void (*)(void (*)(void)))code;
	run(generated);
	puts("ready");
	fflush(stdout);
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	do
		run(generated);
	while (poll(&input, 1, 0) == 0);
	return 7;
}
