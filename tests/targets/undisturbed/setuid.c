/* Whose privilege it has: is it the file owner's? */
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void) {
	free(malloc(100));
	printf("user %d, effective %d, secure %lu\n", getuid(), geteuid(), getauxval(AT_SECURE));
	return 3;
}
