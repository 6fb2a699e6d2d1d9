// Reads JSON files and writes what they differ in: a large header library that is not ours.
#include <nlohmann/json.hpp>
#include <iostream>
#include <fstream>
using nlohmann::json;
int main(int argc, char **argv) {
    json all = json::array();
    for (int i = 1; i < argc; i++) all.push_back(json::parse(std::ifstream(argv[i])));
    const auto flat = all.flatten();
    const auto packed = json::to_cbor(all);
    std::cout << flat.dump(2) << json::from_cbor(packed).dump() << json::diff(all, flat).dump() << '\n';
    std::vector<std::uint8_t> msg = json::to_msgpack(all);
    std::cout << json::from_msgpack(msg).unflatten().size() << '\n';
}
