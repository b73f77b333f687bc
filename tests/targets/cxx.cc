/* Every form of operator new and delete. Allocators such as tcmalloc define
 * these themselves with malloc inlined.
 *
 *   cxx run TRUTH     work, write the truth, end with status 7
 *   cxx throw TRUTH   an operator new that throws, then the same
 */
#include "site.h"
#include <new>

struct alignas(128) wide {
	char bytes[128];
};
struct narrow {
	char bytes[40];
};

/* Volatile, so that the compiler cannot know that the call must fail. */
static volatile size_t huge = SIZE_MAX / 4;

SITE(operator_new, ::operator new(a))
SITE(new_object, new narrow)
SITE(new_array, new narrow[4])
SITE(new_chars, new char[a])
SITE(new_nothrow, new (std::nothrow) narrow)
SITE(new_nothrow_array, new (std::nothrow) char[a])
/* No site: libstdc++ implements it by a throwing one, whose exception is an allocation. */
static __attribute__((noinline)) void *nothrow_failing(size_t a)
{
	return new (std::nothrow) char[a];
}
SITE(new_aligned, new wide)
SITE(new_throwing, ::operator new(a))
SITE(new_array_throwing, new char[a])
SITE(new_aligned_throwing, ::operator new(a, std::align_val_t(128)))

static void objects() {
	for (int i = 0; i < 12; i++) {
		struct block b = ALLOCATE(operator_new, NULL, 77, 0, 77);
		if (i % 3 == 0)
			::operator delete(give(&b));
		else if (i % 3 == 1)
			::operator delete(give(&b), (size_t)77);
		b = ALLOCATE(new_object, NULL, 0, 0, sizeof(narrow));
		if (i % 2)
			delete (narrow *)give(&b);
		b = ALLOCATE(new_array, NULL, 0, 0, 4 * sizeof(narrow));
		if (i % 4)
			delete[] (narrow *)give(&b);
		b = ALLOCATE(new_chars, NULL, 1000, 0, 1000);
		if (i % 6)
			delete[] (char *)give(&b);
		b = ALLOCATE(new_nothrow, NULL, 0, 0, sizeof(narrow));
		if (i % 2)
			delete (narrow *)give(&b);
		b = ALLOCATE(new_nothrow_array, NULL, 333, 0, 333);
		if (i % 2)
			::operator delete[](give(&b), std::nothrow);
		b = ALLOCATE(new_aligned, NULL, 0, 0, sizeof(wide));
		if (i % 4)
			delete (wide *)give(&b);
	}
	if (nothrow_failing(huge))
		fail("a new that must fail");
}

/* Releases its block while the exception unwinds the stack. */
struct released {
	struct block b = ALLOCATE(new_chars, NULL, 1000, 0, 1000);
	~released() { delete[] (char *)give(&b); }
};

static OUT_OF_LINE void throw_at(int depth, int which) {
	if (depth > 0) {
		throw_at(depth - 1, which);
		BARRIER();
		return;
	}
	released during_unwinding;
	if (which % 3 == 0)
		site_new_throwing(NULL, huge, 0);
	else if (which % 3 == 1)
		site_new_array_throwing(NULL, huge, 0);
	else
		site_new_aligned_throwing(NULL, huge, 0);
	if (huge)
		fail("a new that must throw");
}

/* libstdc++ allocates the exception, with a header of 128 bytes, and releases it. */
static void thrown(struct truth *site) {
	site->alloc_bytes += 128 + sizeof(std::bad_alloc);
	site->alloc_count++;
}

static void throwing() {
	static struct truth *const sites[] = {&truth_new_throwing, &truth_new_array_throwing,
					      &truth_new_aligned_throwing};
	for (int i = 0; i < 30; i++) {
		try {
			throw_at(i, i);
		} catch (const std::bad_alloc &) {
			thrown(sites[i % 3]);
			/* Both above and below the frame that threw. */
			struct block b = ALLOCATE(operator_new, NULL, 55, 0, 55);
			if (i % 2)
				::operator delete(give(&b));
		}
	}
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 96;
	if (!strcmp(argv[1], "throw"))
		throwing();
	objects();
	write_truth(argv[2]);
	return 7;
}
