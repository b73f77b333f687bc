/* As growth.c, in C++: objects that are made and never deleted.
 *
 *   growth new SECONDS SEED
 */
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

struct Session {
	std::string name;
	std::vector<char> data;
};

__attribute__((noipa)) static Session *grow_session(size_t size) {
	return new Session{std::string(size / 4, 'x'), std::vector<char>(size)};
}

int main(int argc, char **argv) {
	if (argc < 4 || std::string(argv[1]) != "new")
		return 97;
	std::mt19937_64 random(std::strtoull(argv[3], nullptr, 10));
	auto between = [&](size_t least, size_t most) {
		return std::uniform_int_distribution<size_t>(least, most)(random);
	};
	size_t size = between(1000, 6000);
	auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(argv[2]));
	while (std::chrono::steady_clock::now() < end) {
		for (size_t i = between(1, 4); i > 0; i--)
			grow_session(size);
		delete grow_session(size);
		std::this_thread::sleep_for(std::chrono::milliseconds(between(8, 12)));
	}
	_exit(0);
}
