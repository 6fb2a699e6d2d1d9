//! Settings of the machine that a test changes and puts back, even when it fails.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A file under /proc/sys or /sys with another value for a while.
pub struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    /// Writes `value`; the old value comes back when this is dropped.
    pub fn set(path: impl AsRef<Path>, value: &str) -> Setting {
        let path = path.as_ref().to_owned();
        let before = fs::read_to_string(&path)
            .unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()));
        let setting = Setting {
            path,
            before: before.trim().to_owned(),
        };
        if let Err(err) = setting.write(value) {
            panic!("cannot set {} to {value}: {err}", setting.path.display());
        }
        setting
    }

    /// The kernel refuses some changes (EBUSY) while a profiler runs, or has not quite gone yet.
    fn write(&self, value: &str) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match fs::write(&self.path, value) {
                Err(err)
                    if err.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
                {
                    thread::sleep(Duration::from_millis(50));
                }
                result => return result,
            }
        }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(err) = self.write(&self.before) {
            eprintln!(
                "{} stays changed, it was {}: {err}",
                self.path.display(),
                self.before
            );
        }
    }
}

/// A cgroup v2 with a child, removed when dropped.
pub struct Cgroup {
    /// The group.
    pub path: PathBuf,
    /// Its path below the hierarchy's root, as in /proc/PID/cgroup.
    pub name: String,
}

impl Cgroup {
    /// Makes `/bprof-test-PID` and `/bprof-test-PID/child` in the cgroup v2 hierarchy, wherever
    /// that is mounted.
    pub fn create() -> Cgroup {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
        let mount = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&"cgroup2"))
            .and_then(|fields| fields.get(1).map(PathBuf::from))
            .expect(
                "a cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified",
            );
        let name = format!("/bprof-test-{}", std::process::id());
        let group = Cgroup {
            path: mount.join(&name[1..]),
            name,
        };
        fs::create_dir_all(group.child())
            .unwrap_or_else(|err| panic!("cannot make {}: {err}", group.path.display()));
        group
    }

    /// The group below.
    pub fn child(&self) -> PathBuf {
        self.path.join("child")
    }

    /// Moves a process into `group`.
    pub fn move_into(group: &Path, pid: u32) {
        let procs = group.join("cgroup.procs");
        fs::write(&procs, pid.to_string())
            .unwrap_or_else(|err| panic!("cannot write {}: {err}", procs.display()));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in [self.child(), self.path.clone()] {
            if let Err(err) = fs::remove_dir(&dir) {
                eprintln!("{} stays: {err}", dir.display());
            }
        }
    }
}

/// A CPU that is offline until this is dropped, or this process ends in whatever way.
pub struct Offline {
    /// Brings it back when its standard input closes.
    guard: Child,
    online: PathBuf,
}

impl Offline {
    /// Takes `cpu` offline. `None`, and a word about it, where CPUs cannot be switched.
    pub fn new(cpu: u32) -> Option<Offline> {
        let online = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        if !online.exists() {
            eprintln!(
                "NOT TESTED: this machine cannot switch CPU {cpu} ({})",
                online.display()
            );
            return None;
        }
        let guard = Command::new("sh")
            .arg("-c")
            .arg("read forever; echo 1 >\"$0\"")
            .arg(&online)
            .stdin(Stdio::piped())
            // Ctrl-C for the tests is none for it.
            .process_group(0)
            .spawn()
            .expect("a shell to bring the CPU back");
        let offline = Offline { guard, online };
        fs::write(&offline.online, "0").expect("the CPU goes offline");
        Some(offline)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let status = self.guard.wait();
        let state = fs::read_to_string(&self.online).unwrap_or_default();
        if state.trim() != "1" {
            eprintln!(
                "{} is {state:?} ({status:?}): the CPU stays offline",
                self.online.display()
            );
        }
    }
}
