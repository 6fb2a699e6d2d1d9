//! Real file systems on devices: one that takes no more, which only a sync tells, and one with a quota.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bench, Running};
use crate::room::{SmallDisk, burn_and_tell, check_kept, verified};

/// A file system on a device whose bytes are in memory. It is unmounted when dropped.
struct Device {
    /// After the file system.
    pool: SmallDisk,
    at: PathBuf,
}

fn done(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Device {
    /// Of `size` bytes, of which the memory behind may have less (`pool`), as of a thin volume; `mkfs` makes the file system.
    fn new(bench: &Bench, size: u64, pool: &str, mkfs: &[&str]) -> Device {
        let pool = SmallDisk::new(bench, pool);
        let image = pool.path().join("image");
        let made = fs::File::create(&image).and_then(|file| file.set_len(size));
        made.expect("an image");
        done(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image));
        let at = bench.path("device");
        fs::create_dir(&at).expect("a directory");
        done(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&at),
        );
        Device { pool, at }
    }

    /// ext4 makes zeros of up to 32 KiB around what is written first, which would be all that a short recording needs.
    fn write_no_more_than_told(&self) {
        let source = Command::new("findmnt")
            .args(["-n", "-o", "SOURCE"])
            .arg(&self.at)
            .output()
            .expect("findmnt");
        let source = String::from_utf8(source.stdout).expect("text");
        let name = Path::new(source.trim()).file_name().expect("a device");
        let knob = Path::new("/sys/fs/ext4")
            .join(name)
            .join("extent_max_zeroout_kb");
        fs::write(knob, "0").expect("a file system that can be told");
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What it cannot write it need not wait for.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn has(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 0)
}

/// The pool is full while it records: every write succeeds, the next sync does not. That is told within the time of two, sampling stops, the
/// exit status is 1, and the command runs to its end.
#[test]
fn a_device_that_takes_no_more_is_told_by_the_next_sync() {
    let bench = Bench::new();
    // Without a journal nothing but a sync of the file itself fails.
    let ext4 = [
        "mkfs.ext4",
        "-q",
        "-F",
        "-O",
        "^has_journal",
        "-E",
        "lazy_itable_init=1",
    ];
    let device = Device::new(&bench, 256 << 20, "24m", &ext4);
    device.write_no_more_than_told();
    let (capture, marker) = (device.at.join("run.bprof"), bench.path("ran"));
    let mut command = bench.profiler();
    command
        .args(["record", "-F", "4999", "--sync", "0.5", "-o"])
        .arg(&capture);
    burn_and_tell(&mut command, "4", &marker);
    let running = Running::start_command(&bench, command);
    let begun = Instant::now();
    while !has(&capture) && begun.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(10));
    }
    // Past the first frames, whose blocks it has.
    thread::sleep(Duration::from_millis(1500));
    device.pool.fill();
    let full = Instant::now();
    let told = bench.path("record.stderr");
    // The second where what the file system says of the file is the first to find no room.
    let reasons = ["No space left on device", "Input/output error"];
    let times = |text: &str| reasons.map(|reason| text.matches(reason).count());
    let told = || fs::read_to_string(&told).is_ok_and(|text| times(&text) != [0, 0]);
    while !told() && full.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(10));
    }
    let after = full.elapsed();
    let recorded = running.wait();
    let said = &recorded.stderr;
    assert_eq!(recorded.code(), 1, "{recorded:#?}");
    assert_eq!(times(said).iter().sum::<usize>(), 1, "{said}");
    assert!(said.contains("run.bprof"), "{said}");
    // A frame is written each 0.9 s, and brought to the disk with the sync after it; on a busy machine that takes longer.
    assert!(
        after < Duration::from_secs(10),
        "told after {after:?}: {said}"
    );
    assert!(marker.exists(), "the command did not end by itself");
    // As far as the cache still has it.
    assert!(verified(&capture).contains("no damage"));
}

/// A quota that others of the same quota group use up: told at once and with what to do, all samples up to then are there, and the
/// command runs to its end. btrfs gives no room back that was kept free for the end, so that it is a cut.
#[test]
fn a_quota_that_is_used_up() {
    let bench = Bench::new();
    let device = Device::new(&bench, 150 << 20, "200m", &["mkfs.btrfs", "-q"]);
    let group = device.at.join("group");
    let btrfs = |words: &[&str]| done(Command::new("btrfs").args(words).arg(&group));
    done(
        Command::new("btrfs")
            .args(["quota", "enable"])
            .arg(&device.at),
    );
    btrfs(&["subvolume", "create"]);
    btrfs(&["qgroup", "limit", "4M"]);
    let (capture, marker) = (group.join("run.bprof"), bench.path("ran"));
    let mut command = bench.profiler();
    command.args(["record", "-F", "999", "-o"]).arg(&capture);
    burn_and_tell(&mut command, "4", &marker);
    let running = Running::start_command(&bench, command);
    thread::sleep(Duration::from_millis(2500));
    let filled = fs::File::create(group.join("filler"))
        .and_then(|mut filler| std::io::copy(&mut std::io::repeat(1), &mut filler));
    let filled = filled.expect_err("there is a quota").raw_os_error();
    assert_eq!(filled, Some(libc::EDQUOT));
    let mut recorded = running.wait();
    recorded.capture = capture.clone();
    let said = &recorded.stderr;
    assert_eq!(recorded.code(), 1, "{recorded:#?}");
    assert_eq!(said.matches("Disk quota exceeded").count(), 1, "{said}");
    assert!(said.contains("run.bprof"), "{said}");
    assert!(marker.exists(), "the command did not end by itself");
    assert!(said.contains("make room there"), "{said}");
    assert!(verified(&capture).contains("no damage"));
    check_kept(&recorded);
}
