/* Keeps 1,000 blocks of 1,000 bytes: `cargo xtask dist --test` records it. */
#include <stdlib.h>

int main(void)
{
    static void *volatile kept[1000];
    /* Programs that never free get another malloc of musl. */
    free(malloc(1));
    for (int i = 0; i < 1000; i++)
        kept[i] = malloc(1000);
    return kept[999] == NULL;
}
