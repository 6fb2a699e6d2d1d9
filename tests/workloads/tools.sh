# tools DIR SECONDS: a compiler or two, interpreters, sorting and packing side by side in DIR, each again and again until the time
# is over.
set -eu
cd "$1"
end=$(($(date +%s) + $2))
cat >a.cpp <<'END'
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main(int count, char **args) {
    std::map<std::string, std::vector<int>> all;
    all[args[0]].push_back(count);
    std::sort(all[args[0]].begin(), all[args[0]].end());
    return std::regex_match(args[0], std::regex("a+b"));
}
END
cat >a.rs <<'END'
use std::collections::HashMap;
fn main() {
    let mut all: HashMap<String, Vec<usize>> = HashMap::new();
    for arg in std::env::args() {
        all.entry(arg).or_default().push(3);
    }
    let mut keys: Vec<_> = all.iter().collect();
    keys.sort();
    println!("{keys:?}");
}
END
cat >a.py <<'END'
import hashlib, json, re
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
for i in range(5):
    fib(20)
    json.loads(json.dumps([{"a": i, "b": [str(j) for j in range(50)]} for i in range(200)]))
    re.findall(r"(\w+)\s+(\d+)", "abc 123 " * 2000)
    sorted((i * 7919 % 1000 for i in range(20000)), key=lambda i: -i)
    hashlib.sha256(b"x" * 300000).digest()
END
cat >a.js <<'END'
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
for (let i = 0; i < 5; i++) {
    fib(25);
    JSON.parse(JSON.stringify(Array.from({ length: 20000 }, (_, j) => ({ a: j, b: "x" + j }))));
    Array.from({ length: 50000 }, (_, j) => (j * 7919) % 50000).sort((a, b) => a - b);
    "abc 123 ".repeat(10000).match(/\w+\s\d+/g);
}
END
seq 1 7 3000000 | tr 0-9 3-90-2 >text
again() {
    while [ "$(date +%s)" -lt "$end" ]; do "$@" >"out.$1" 2>&1 || exit 1; done
}
again g++ -O2 -c a.cpp -o a.o &
again "${RUSTC:-rustc}" --edition 2021 -O a.rs -o a.program &
again python3 a.py &
again node a.js &
again gzip -kf text &
again sort -r text -o sorted &
wait
