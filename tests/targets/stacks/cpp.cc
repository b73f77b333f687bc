// Additional cases in C++.
#include "probe.h"
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

extern "C" {
void *operator_new(size_t size) { return ::operator new(size); }
void operator_delete(void *p) { ::operator delete(p); }
#include "cases.h"
#define DECLARE(name) void case_##name(void);
CPP_CASES(DECLARE)
}

namespace {
volatile int five = 5;

OUT_OF_LINE bool less(int a, int b) {
	PROBE("less<*", sort);
	return a < b;
}

struct guard {
	OUT_OF_LINE ~guard() {
		PROBE("~guard<*", exception);
		BARRIER();
	}
};
OUT_OF_LINE void throws(int n) {
	guard inner;
	PROBE("throws<passes", exception);
	throw n;
}
OUT_OF_LINE void passes(int n) {
	guard outer;
	throws(n);
	BARRIER();
}
OUT_OF_LINE void in_catch() {
	PROBE("in_catch", exception);
	BARRIER();
}

OUT_OF_LINE void throws_again(int n) {
	PROBE("throws_again<catches", exception_rethrown);
	KEEP(&n);
	throw;
}
OUT_OF_LINE void catches(int n) {
	try {
		throw n;
	} catch (int caught) {
		throws_again(caught);
	}
	BARRIER();
}
OUT_OF_LINE void after_catch() {
	PROBE("after_catch", exception_rethrown);
	BARRIER();
}

/* An allocator of containers. */
template <typename T> struct probed {
	using value_type = T;
	OUT_OF_LINE T *allocate(size_t n) {
		PROBE("allocate<*<grows", vector_growth);
		return static_cast<T *>(malloc(n * sizeof(T)));
	}
	void deallocate(T *p, size_t) { free(p); }
	bool operator==(const probed &) const { return true; }
	bool operator!=(const probed &) const { return false; }
};
OUT_OF_LINE void grows(int n) {
	std::vector<int, probed<int>> numbers;
	for (int i = 0; i < n; i++)
		numbers.push_back(i);
	KEEP(numbers.data());
}

OUT_OF_LINE void by_operator_new() {
	probe(OPERATOR_NEW, "by_operator_new" IN(operator_new));
	BARRIER();
}

struct first_base {
	virtual ~first_base() = default;
	long padding = 1;
};
struct second_base {
	virtual ~second_base() = default;
	virtual void call() = 0;
};
struct derived : first_base, second_base {
	OUT_OF_LINE void call() override {
		PROBE("call<*", virtual_thunk);
		BARRIER();
	}
};
OUT_OF_LINE second_base *make() { return new derived; }

OUT_OF_LINE void with_captures(const std::function<void(int)> &function) {
	function(five);
	BARRIER();
}

OUT_OF_LINE int value() {
	PROBE("value<*<initialises", initialiser);
	return five;
}
template <int N> struct lazy {
	OUT_OF_LINE static int initialises() {
		static int once = value();
		return once;
	}
};
} // namespace

void case_sort(void) {
	std::vector<int> numbers = {5, 3, 9, 1, 7, 2};
	std::sort(numbers.begin(), numbers.end(), less);
	std::stable_sort(numbers.begin(), numbers.end(), less);
	KEEP(numbers.data());
}

void case_exception(void) {
	try {
		passes(five);
	} catch (int) {
		in_catch();
	}
	BARRIER();
}

void case_exception_rethrown(void) {
	try {
		catches(five);
	} catch (int) {
		after_catch();
	}
	BARRIER();
}

void case_vector_growth(void) {
	grows(five * 10);
	BARRIER();
}

void case_operator_new(void) {
	by_operator_new();
	BARRIER();
}

void case_virtual_thunk(void) {
	second_base *object = make();
	object->call();
	delete object;
	BARRIER();
}

void case_function_object(void) {
	long sum[4] = {five, 2, 3, 4};
	with_captures([sum](int n) {
		probe(MALLOC, "*<with_captures" IN(function_object));
		KEEP(&n); KEEP(sum);
	});
	BARRIER();
}

void case_initialiser(void) {
	lazy<1>::initialises();
	BARRIER();
}
