/* Allocates below every kind of frame there is.
 *
 *   stacks TRUTH [PLUGIN]        ends with code 7
 *   stacks TRUTH PLUGIN hold     before it begins and before it ends it says
 *                                so and awaits a byte
 */
#include "cases.h"
#include "probe.h"
#include <stdlib.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define DECLARE(name) void case_##name(void);
#define ROW(name) case_##name,
C_CASES(DECLARE)
CPP_CASES(DECLARE)
PLUGIN_CASES(DECLARE)

static void (*const cases[])(void) = {C_CASES(ROW)
#ifndef WITHOUT_CPP
					  CPP_CASES(ROW)
#endif
#ifndef WITHOUT_PLUGIN
					      PLUGIN_CASES(ROW)
#endif
};

const char *plugin_path;
enum { ROUNDS = 3 };

static void await(const char *line, size_t length) {
	char byte;
	if (write(1, line, length) < 0 || read(0, &byte, 1) < 0)
		broken("the hand-shake");
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 96;
	plugin_path = argv[2];
#ifdef __GLIBC__
	/* Otherwise it would move when memory is released. */
	mallopt(M_MMAP_THRESHOLD, 1 << 19);
#endif
	if (argc > 3)
		await("ready\n", 6);
	for (volatile int round = 0; round < ROUNDS; round++)
		for (volatile size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			cases[i]();
	write_stacks(argv[1]);
	if (argc > 3)
		await("done\n", 5);
	return 7;
}
