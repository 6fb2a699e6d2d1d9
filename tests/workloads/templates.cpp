// A program of many templates, namespaces, lambdas and inlined functions.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
namespace app {
namespace {
struct Hidden { int value; int twice() const { return value * 2 + static_cast<int>(std::to_string(value).size()); } };
}
template <typename T> class Store {
  public:
    void add(const std::string &key, T value) { map_[key].push_back(std::move(value)); }
    long total() const {
        long sum = 0;
        for (const auto &entry : map_) for (const auto &value : entry.second) sum += weigh(value);
        return sum;
    }
  private:
    static long weigh(const T &value) { return static_cast<long>(value.size()); }
    std::map<std::string, std::vector<T>> map_;
};
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Circle final : Shape { double r; explicit Circle(double r) : r(r) {} double area() const override { return 3.14 * r * r; } };
struct Square final : Shape { double a; explicit Square(double a) : a(a) {} double area() const override { return a * a; } };
long regexes(const std::string &text) {
    std::regex word("([a-z]+)-([0-9]+)");
    long n = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) n += (*it)[1].length();
    return n;
}
} // namespace app
int main(int argc, char **argv) {
    app::Store<std::string> store;
    std::unordered_map<std::string, int> counts;
    for (int i = 0; i < argc; i++) { store.add(argv[i], std::string(i, 'x')); counts[argv[i]]++; }
    std::vector<std::unique_ptr<app::Shape>> shapes;
    shapes.push_back(std::make_unique<app::Circle>(argc));
    shapes.push_back(std::make_unique<app::Square>(argc));
    std::sort(shapes.begin(), shapes.end(), [](const auto &a, const auto &b) { return a->area() < b->area(); });
    std::function<int(int)> f = [&](int x) { return app::Hidden{x}.twice() + argc; };
    std::ostringstream out;
    out << store.total() << ' ' << app::regexes(argv[0]) << ' ' << f(argc) << ' ' << counts.size();
    try { if (argc > 100) throw std::runtime_error(out.str()); } catch (const std::exception &e) { std::cerr << e.what(); }
    std::cout << out.str() << '\n';
}
