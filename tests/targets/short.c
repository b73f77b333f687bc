/* Forks children that allocate, free some of it and end, one after the other.
 *
 *   short COUNT   says the pid of the last child
 */
#include "site.h"

SITE(inherited, malloc(a))
SITE(made, malloc(a))

int main(int argc, char **argv) {
	int count = argc == 2 ? atoi(argv[1]) : 0;
	if (count < 1 || !site_inherited(NULL, 64, 0))
		return 96;
	pid_t child = 0;
	for (int n = 0; n < count; n++) {
		child = fork();
		if (child == 0) {
			/* Ten of 100 bytes each, four freed; all at once is the peak. The last child has one more. */
			void *blocks[11];
			int made = 10 + (n == count - 1);
			for (int i = 0; i < made; i++)
				blocks[i] = site_made(NULL, 100, 0);
			for (int i = 0; i < 4; i++)
				free(blocks[i]);
			_exit(0);
		}
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			fail("a child");
	}
	printf("%d\n", child);
	return 0;
}
