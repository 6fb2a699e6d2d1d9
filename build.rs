//! Compiles the programs in `bpf/` and generates their Rust skeletons into `OUT_DIR`.

fn main() {
    #[cfg(feature = "record")]
    for program in ["profiler", "symbols"] {
        skeleton(program);
    }
}

/// Needs clang; kernel types come from `bpf/kernel_types.h`, so no BTF or vmlinux.h is needed to build.
#[cfg(feature = "record")]
fn skeleton(program: &str) {
    use std::env;
    use std::path::PathBuf;

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source = format!("bpf/{program}.bpf.c");
    println!("cargo::rerun-if-changed=bpf");
    if let Err(err) = libbpf_cargo::SkeletonBuilder::new()
        .source(&source)
        .clang_args(["-Ibpf", "-Wall", "-Wextra", "-Werror", "-O2"])
        .build_and_generate(out.join(format!("{program}.skel.rs")))
    {
        panic!("{source} does not build (is clang installed?): {err:#}");
    }
}
