// Blocks that a std::map or a std::list keeps, while two threads replace thousands of nodes a second: all of their own,
// and some of those between the kept ones. Prints what to search for.
//
// nodes map|list

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static const int KEPT = 1000;
/// Of so many replaced nodes one is between the kept ones.
static const int RARE = 500;
/// Jobs besides the kept ones, at both ends.
static const int SPARE = 100;

std::map<long, void *> sessions;
std::list<void *> jobs;
static std::mutex lock;

/// Replaces a node between the kept ones.
static void replace_one(unsigned *seed) {
	std::lock_guard<std::mutex> guard(lock);
	long key = 2 * (rand_r(seed) % KEPT) + 1;
	if (!sessions.erase(key))
		sessions.emplace(key, nullptr);
	bool at_front = rand_r(seed) % 2;
	if (jobs.size() < KEPT + SPARE)
		at_front ? jobs.push_front(nullptr) : jobs.push_back(nullptr);
	else if (!jobs.front())
		jobs.pop_front();
	else
		jobs.pop_back();
}

static void replace(unsigned seed) {
	std::vector<std::map<long, std::string>> maps(100);
	std::vector<std::list<std::string>> lists(100);
	for (long count = 0;; count++) {
		auto &map = maps[rand_r(&seed) % maps.size()];
		auto &list = lists[rand_r(&seed) % lists.size()];
		map.emplace(rand_r(&seed), std::string(100, 'm'));
		list.emplace_back(100, 'l');
		if (map.size() > 50)
			map.erase(map.begin());
		if (list.size() > 50)
			list.pop_front();
		if (count % RARE == 0)
			replace_one(&seed);
	}
}

/// The arguments of the search.
static std::string keep(bool in_map) {
	std::string sought;
	for (long number = 0; number < KEPT; number++) {
		void *block = malloc(500);
		if (in_map)
			sessions.emplace(2 * number, block);
		else
			jobs.push_back(block);
		char text[40];
		snprintf(text, sizeof text, " --address=%p", block);
		if (number % 60 == 0)
			sought += text;
	}
	return sought;
}

int main(int, char **arguments) {
	std::string sought = keep(!strcmp(arguments[1], "map"));
	std::thread(replace, 1).detach();
	std::thread(replace, 2).detach();
	printf("ready%s\n", sought.c_str());
	fflush(stdout);
	getchar();
	_exit(0);
}
