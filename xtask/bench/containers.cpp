/* Target of `cargo xtask bench`: containers that grow and shrink. Says "ready", waits for a byte on
 * stdin, does its work, prints ns per operation.
 *
 *   containers map COUNT      COUNT times: insert into a map, and erase what is as old as it may be
 *   containers strings COUNT  COUNT times: append to a string of a vector, and start anew at times
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t warm_up = 20000;
/* Entries that a map keeps, and strings of the vector. */
constexpr std::uint64_t kept = 1000;
/* Too long for a string to keep in itself. */
constexpr char word[] = "a value of forty-one bytes, more than SSO";

/* Spreads keys, so that neighbours in time are not neighbours in the tree. */
std::uint64_t key(std::uint64_t number) { return number * 0x9e3779b97f4a7c15; }

std::uint64_t churn_map(std::uint64_t count)
{
    std::map<std::uint64_t, std::string> map;
    for (std::uint64_t i = 0; i < count; i++) {
        map.emplace(key(i), word);
        if (i >= kept)
            map.erase(key(i - kept));
    }
    return map.size();
}

std::uint64_t churn_strings(std::uint64_t count)
{
    std::vector<std::string> strings(kept);
    for (std::uint64_t i = 0; i < count; i++) {
        std::string &string = strings[key(i) % kept];
        if (string.size() > 1000)
            string = std::string(word) + " anew";
        string += word;
    }
    return strings.size();
}

} // namespace

int main(int argc, char **argv)
{
    const std::string kind = argc == 3 ? argv[1] : "";
    const std::uint64_t count = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
    if (count == 0 || (kind != "map" && kind != "strings")) {
        std::fprintf(stderr, "usage: containers map COUNT | strings COUNT\n");
        return 2;
    }
    const auto churn = kind == "map" ? churn_map : churn_strings;
    std::puts("ready");
    std::fflush(stdout);
    if (std::getchar() == EOF)
        return 1;
    churn(warm_up);
    const auto start = std::chrono::steady_clock::now();
    const auto left = churn(count);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    std::printf("%.3f\n", took.count() / static_cast<double>(count));
    return left == 0;
}
