//! What `/proc` says of a process that is there, this one, and the samples that it may name.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::event::{LossClass, Pid, Timestamp};
use crate::record::drain::rig::{Rig, TICK, Who};
use crate::record::maps::read_executable;
use crate::record::processes::Scope;
use crate::record::procfs;
use crate::record::sideband::SideKind;

/// What one test maps is none of the others' business.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Executable memory of this process, unmapped when dropped.
struct Area(u64);

const LEN: usize = 0x1000;

impl Area {
    fn new() -> Area {
        Area::map(null_mut(), -1, libc::MAP_ANONYMOUS)
    }

    /// Puts the beginning of `file` in its place.
    fn replace(&self, file: &File) {
        let moved = Area::map(self.0 as *mut _, file.as_raw_fd(), libc::MAP_FIXED);
        assert_eq!(moved.0, self.0);
        std::mem::forget(moved);
    }

    fn map(at: *mut libc::c_void, fd: i32, flags: i32) -> Area {
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: at a place of the kernel's choice, or in that of a mapping of our own that nobody uses.
        let start = unsafe { libc::mmap(at, LEN, prot, libc::MAP_PRIVATE | flags, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED, "mmap");
        Area(start as u64)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.0 as *mut _, LEN) };
    }
}

fn myself() -> (Pid, Who) {
    let pid = std::process::id();
    let stat = procfs::read_stat(Pid(pid)).expect("/proc/self/stat");
    let who = Who {
        tgid: pid,
        start: stat.start_ticks * TICK + 17,
        exec: 7,
        comm: "own",
    };
    (Pid(pid), who)
}

/// A file nobody else maps.
fn plug(rig: &Rig) -> (File, String) {
    let path = rig._dir.path().join("plug.so");
    std::fs::write(&path, [0; LEN]).expect("a file");
    let shown = path.to_str().expect("UTF-8").to_owned();
    (File::open(path).expect("it opens"), shown)
}

/// Seconds.
const S: u64 = 1_000_000_000;

/// Records of a mapping were lost: it is read again, holds from then on, and what was there before names nothing in
/// between.
#[test]
fn a_mapping_whose_record_was_lost_is_read_again() {
    let _turn = turn();
    let (pid, who) = myself();
    let mut rig = Rig::new(Scope::All, None);
    let area = Area::new();
    assert!(rig.processes.snapshot(pid, Timestamp(S)));
    rig.sample(2 * S, who, area.0);
    rig.batch(3 * S);
    let (file, path) = plug(&rig);
    area.replace(&file);
    rig.sample(4 * S, who, area.0 + 8);
    rig.event(5 * S, SideKind::Lost(1));
    // Code that nothing is known of is no reason to believe the rest.
    let other = Area::new();
    rig.sample(5 * S, who, other.0);
    rig.batch(6 * S);
    // Only now is known what happened until it was read.
    rig.batch(6 * S + 1);
    rig.sample(7 * S, who, area.0 + 8);
    let (all, losses) = rig.finish();
    let places: Vec<_> = all.iter().map(|seen| seen.place.as_str()).collect();
    let after = format!("{path}+0x8");
    assert_eq!(places, ["+0x0", "", "", &after]);
    // What came between is unknown, which is told.
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1);
}

/// Records were lost that had nothing to do with the process: it keeps its names.
#[test]
fn a_process_that_is_as_it_was_keeps_its_names() {
    let _turn = turn();
    let (pid, who) = myself();
    let mut rig = Rig::new(Scope::All, None);
    let area = Area::new();
    assert!(rig.processes.snapshot(pid, Timestamp(S)));
    rig.sample(2 * S, who, area.0);
    rig.batch(3 * S);
    rig.event(4 * S, SideKind::Lost(1));
    rig.sample(5 * S, who, area.0 + 4);
    rig.batch(6 * S);
    let (all, losses) = rig.finish();
    let places: Vec<_> = all.iter().map(|seen| seen.place.as_str()).collect();
    assert_eq!(places, ["+0x0", "+0x4"]);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 0);
}

/// Code where nothing is known to be: looked at once, and again only after a while.
#[test]
fn unknown_code_is_looked_at_but_not_all_the_time() {
    let _turn = turn();
    let (pid, who) = myself();
    let mut rig = Rig::new(Scope::All, None);
    assert!(rig.processes.snapshot(pid, Timestamp(S)));
    let first = Area::new();
    rig.sample(2 * S, who, first.0);
    rig.batch(3 * S);
    rig.batch(3 * S + 1);
    rig.sample(4 * S, who, first.0);
    let second = Area::new();
    rig.sample(5 * S, who, second.0);
    rig.batch(6 * S);
    rig.sample(7 * S, who, second.0);
    rig.batch(7 * S + 1);
    // Ten seconds after the first look, and at another page, or it is taken for looked at.
    let third = Area::new();
    rig.sample(13 * S, who, third.0);
    rig.batch(14 * S);
    rig.batch(14 * S + 1);
    rig.sample(15 * S, who, second.0);
    rig.sample(16 * S, who, third.0);
    let (all, _) = rig.finish();
    // Areas side by side are one mapping, so offsets in it say nothing.
    let known: Vec<_> = all.iter().map(|seen| !seen.place.is_empty()).collect();
    assert_eq!(known, [false, true, false, false, false, true, true]);
}

/// What `/proc` shows is later than what has been told: of the next program, or of what was mapped there next. It
/// must not name samples taken before.
#[test]
fn what_was_read_is_not_believed_of_a_moment_before() {
    let _turn = turn();
    let (pid, who) = myself();
    let next = Who {
        exec: who.exec + 1,
        ..who
    };
    let after = |told: fn(&mut Rig, u32, u64)| {
        let mut rig = Rig::new(Scope::All, None);
        assert!(rig.processes.snapshot(pid, Timestamp(S)));
        let area = Area::new();
        rig.sample(2 * S, who, area.0);
        rig.event(3 * S, SideKind::Lost(1));
        // Read here.
        rig.batch(4 * S);
        rig.sample(4 * S + 1, who, area.0);
        told(&mut rig, pid.0, area.0);
        rig.sample(4 * S + 3, next, area.0);
        rig.batch(5 * S);
        rig.batch(6 * S);
        rig.sample(7 * S, next, area.0);
        let (all, _) = rig.finish();
        all.into_iter().map(|seen| seen.place).collect::<Vec<_>>()
    };
    let execed = after(|rig, pid, _| rig.exec(4 * S + 2, pid, "next"));
    assert_eq!(execed, ["", "", "", ""]);
    let mapped = after(|rig, pid, area| {
        rig.exec(4 * S + 2, pid, "next");
        rig.map(4 * S + 2, pid, area, "/next");
    });
    assert_eq!(mapped, ["", "", "/next+0x0", "/next+0x0"]);
}

/// A program that makes new code areas for ever and gives old ones back, which the kernel does not tell.
#[test]
fn mappings_that_are_gone_are_forgotten_in_time() {
    let _turn = turn();
    let (pid, who) = myself();
    let mut rig = Rig::new(Scope::All, None);
    let area = Area::new();
    assert!(rig.processes.snapshot(pid, Timestamp(S)));
    let now = read_executable(pid).expect("own mappings").len();
    let mut most = 0;
    for i in 0..100_000u64 {
        let time = 2 * S + i * 1_000_000;
        // Far from all that is there.
        rig.map(time, pid.0, 0x10_0000 + i * 0x1000, "");
        if i % 100 == 0 {
            rig.batch(time);
            most = most.max(rig.processes.mappings_kept(pid));
        }
    }
    assert!(most < 10_000, "{most} mappings kept");
    let last = 200 * S;
    rig.batch(last - 2);
    rig.batch(last - 1);
    rig.sample(last, who, area.0);
    rig.batch(last);
    assert!(
        rig.processes.mappings_kept(pid) >= now.min(3),
        "all forgotten"
    );
    let (all, _) = rig.finish();
    assert_eq!(all[0].place, "+0x0", "what is there stays");
}

/// The same area again and again is one mapping.
#[test]
fn an_area_used_again_is_kept_once() {
    let _turn = turn();
    let (pid, _) = myself();
    let mut rig = Rig::new(Scope::All, None);
    assert!(rig.processes.snapshot(pid, Timestamp(S)));
    let before = rig.processes.mappings_kept(pid);
    for i in 0..100_000u64 {
        let time = 2 * S + i * 1_000_000;
        rig.map(time, pid.0, 0x10_0000 + i % 50 * 0x1000, "");
        if i % 100 == 0 {
            rig.batch(time);
        }
    }
    let last = 200 * S;
    (0..4).for_each(|i| {
        rig.map(last + i, pid.0, 0x10_0000, "");
        rig.batch(last + i);
    });
    let kept = rig.processes.mappings_kept(pid);
    assert!(kept <= before + 52, "{kept} mappings kept, {before} before");
}
