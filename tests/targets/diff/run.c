/* Runs the `step` of a library a given number of times, at an even pace.
 *
 *   run LIBRARY STEPS
 *
 * A step is one iteration: `iteration` allocates once in each. */
#include "../site.h"
#include <dlfcn.h>
#include <time.h>

OUT_OF_LINE static void iteration(void) {
	void *work = malloc(100);
	BARRIER();
	free(work);
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 96;
	void *library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		return 97;
	void (*step)(void) = (void (*)(void))dlsym(library, "step");
	if (!step)
		return 98;
	/* The pace is the load: both machines do the same work in the same time. */
	struct timespec pause = {0, 5000000};
	for (int left = atoi(argv[2]); left > 0; left--) {
		iteration();
		step();
		nanosleep(&pause, NULL);
	}
	return 7;
}
