//! Where and with what something was measured: what a reader needs to do it again.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Facts of this machine, now.
pub fn facts() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    let cpu = read("/proc/cpuinfo");
    let number = |path: &str| read(path).trim().parse::<i64>().ok();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    json!({
        "date": jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpu": field(&cpu, "model name"),
        "cpus": cpus,
        "virtual": field(&cpu, "flags").map(|flags| flags.contains("hypervisor")),
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "system": field(&read("/etc/os-release").replace('=', ":"), "PRETTY_NAME").map(|s| s.trim_matches('"').to_owned()),
        "perf_event_max_sample_rate": number("/proc/sys/kernel/perf_event_max_sample_rate"),
        "perf_cpu_time_max_percent": number("/proc/sys/kernel/perf_cpu_time_max_percent"),
        "perf_event_max_stack": number("/proc/sys/kernel/perf_event_max_stack"),
    })
}

/// One line of it.
pub fn describe(facts: &Value) -> String {
    let text = |name: &str| facts[name].as_str().unwrap_or("unknown").to_owned();
    format!(
        "{}; Linux {}, {} x {}{}, {}",
        text("date"),
        text("kernel"),
        facts["cpus"],
        text("cpu"),
        match facts["virtual"].as_bool() {
            Some(true) => " (virtual machine)",
            _ => "",
        },
        text("system"),
    )
}

/// The first line of what `program` says of its version; `None` when it cannot be run.
pub fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output
        .status
        .success()
        .then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

/// The commit of the sources, with `+` when they were changed since.
pub fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(args)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(commit + if changed.is_empty() { "" } else { "+" })
}
