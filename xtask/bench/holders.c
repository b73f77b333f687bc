// As many small blocks as given by its argument, in a thousand lists; then waits for the end of its input.

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct node {
	struct node *next;
	long number;
};

static struct node *lists[1000];

int main(int count, char **arguments) {
	long blocks = count > 1 ? atol(arguments[1]) : 0;
	for (long i = 0; i < blocks; i++) {
		struct node *node = malloc(sizeof *node);
		if (!node) return 1;
		node->next = lists[i % 1000];
		node->number = i;
		lists[i % 1000] = node;
	}
	puts("ready");
	fflush(stdout);
	char byte;
	while (read(0, &byte, 1) > 0) {}
	return 0;
}
