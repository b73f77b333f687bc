/* Leaks a block of 1000 bytes each millisecond, into a list that a variable keeps, until its input ends. Answers each
 * line of input with `alive`. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct kept {
	struct kept *next;
	char rest[1000 - sizeof(void *)];
};

struct kept *kept_list;

__attribute__((noinline)) void keep_another(void) {
	struct kept *another = malloc(sizeof *another);
	another->next = kept_list;
	kept_list = another;
}

int main(void) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	struct pollfd input = { .fd = 0, .events = POLLIN };
	for (;;) {
		if (poll(&input, 1, 1) > 0) {
			char line[100];
			if (read(0, line, sizeof line) <= 0)
				return 0;
			puts("alive");
		}
		keep_another();
	}
}
