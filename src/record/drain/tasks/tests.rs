//! A sample belongs to the image that ran when it was taken, and its addresses are looked up in the mappings of that
//! time: whatever comes in which batch.

use crate::event::{LossClass, Pid, Timestamp};
use crate::record::drain::rig::{NOBODY, Rig, Seen, Who, seen};
use crate::record::processes::Scope;
use crate::record::sideband::SideKind;

/// One PID, two processes, three programs at the same address.
fn life_of_a_number(rig: &mut Rig, mut batch: impl FnMut(&mut Rig, u64)) {
    let a = |exec, comm| Who {
        tgid: NOBODY,
        start: 95,
        exec,
        comm,
    };
    let again = Who {
        tgid: NOBODY,
        start: 595,
        exec: 1,
        comm: "c",
    };
    rig.fork(100, NOBODY + 1, NOBODY);
    batch(rig, 110);
    rig.exec(200, NOBODY, "a");
    batch(rig, 205);
    rig.map(210, NOBODY, 0x1000, "/a");
    batch(rig, 215);
    rig.sample(220, a(1, "a"), 0x1010);
    batch(rig, 225);
    rig.sample(230, a(1, "a"), 0x9000);
    rig.map(240, NOBODY, 0x9000, "/late.so");
    batch(rig, 245);
    rig.sample(250, a(1, "a"), 0x9020);
    rig.event(
        260,
        SideKind::Comm {
            process: Pid(NOBODY),
            comm: "A2".into(),
        },
    );
    rig.sample(270, a(1, "A2"), 0x1010);
    batch(rig, 275);
    rig.exec(300, NOBODY, "b");
    rig.map(310, NOBODY, 0x1000, "/b");
    batch(rig, 315);
    rig.sample(320, a(2, "b"), 0x1010);
    rig.sample(330, a(2, "b"), 0x9020);
    batch(rig, 335);
    rig.exit(400, NOBODY);
    batch(rig, 405);
    rig.fork(600, NOBODY + 1, NOBODY);
    rig.exec(610, NOBODY, "c");
    batch(rig, 615);
    rig.map(620, NOBODY, 0x1000, "/c");
    rig.sample(630, again, 0x1010);
    batch(rig, 635);
}

fn what_is_true_of_it() -> Vec<Seen> {
    let (first, second) = ((NOBODY, 95), (NOBODY, 595));
    vec![
        seen(220, first, "a", "/a+0x10"),
        seen(230, first, "a", ""),
        seen(250, first, "a", "/late.so+0x20"),
        seen(270, first, "A2", "/a+0x10"),
        seen(320, first, "b", "/b+0x10"),
        seen(330, first, "b", ""),
        seen(630, second, "c", "/c+0x10"),
    ]
}

/// However it comes in batches, and whatever a segment ends in: each sample has the mapping and the name of its time.
#[test]
fn a_sample_belongs_to_the_image_of_its_time() {
    // Bit n: a batch ends at the n-th place.
    for mask in 0..1u32 << 11 {
        let mut rig = Rig::new(Scope::All, None);
        let mut place = 0;
        life_of_a_number(&mut rig, |rig, time| {
            if mask & (1 << place) != 0 {
                rig.batch(time);
            }
            place += 1;
        });
        assert_eq!(place, 11);
        let sampled = rig.processes.sampled;
        let (all, losses) = rig.finish();
        assert_eq!(all, what_is_true_of_it(), "batches {mask:#b}");
        assert_eq!(losses.iter().count(), 0, "batches {mask:#b}");
        assert!(sampled <= 2);
    }
}

#[test]
fn each_segment_says_all_that_its_samples_need() {
    let mut rig = Rig::new(Scope::All, None);
    life_of_a_number(&mut rig, |rig, time| {
        rig.drain.segment_is_due = true;
        rig.batch(time);
    });
    let (all, losses) = rig.finish();
    assert_eq!(all, what_is_true_of_it());
    assert_eq!(losses.iter().count(), 0);
}

/// The first process of a number was never sampled.
#[test]
fn a_sample_is_of_the_process_that_had_started_then() {
    let mut rig = Rig::new(Scope::All, None);
    for (time, path) in [(10, "/a"), (110, "/b"), (210, "/c")] {
        rig.fork(time, NOBODY + 1, NOBODY);
        rig.exec(time + 1, NOBODY, &path[1..]);
        rig.map(time + 2, NOBODY, 0x1000, path);
        rig.exit(time + 30, NOBODY);
    }
    let who = Who {
        tgid: NOBODY,
        start: 109,
        exec: 1,
        comm: "b",
    };
    rig.sample(120, who, 0x1010);
    let expected = [seen(120, (NOBODY, 109), "b", "/b+0x10")];
    assert_eq!(rig.finish().0, expected);
}

/// Rings of several CPUs are read one after the other.
#[test]
fn samples_may_come_out_of_order_within_a_batch() {
    let mut rig = Rig::new(Scope::All, None);
    rig.sample(40, who(2, "b"), 0x1010);
    rig.sample(20, who(1, "a"), 0x1010);
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.exec(11, NOBODY, "a");
    rig.map(12, NOBODY, 0x1000, "/a");
    rig.exec(30, NOBODY, "b");
    rig.map(31, NOBODY, 0x1000, "/b");
    rig.batch(50);
    let expected = [
        seen(20, (NOBODY, 5), "a", "/a+0x10"),
        seen(40, (NOBODY, 5), "b", "/b+0x10"),
    ];
    assert_eq!(rig.finish().0, expected);
}

/// A child has what its parent had at the fork, and nothing of what came after; children of strangers are not followed.
#[test]
fn forks_inherit_and_strangers_are_left_out() {
    let (parent, child, stranger) = (NOBODY, NOBODY + 1, NOBODY + 2);
    let mut rig = Rig::new(Scope::All, None);
    rig.fork(10, NOBODY + 9, parent);
    rig.exec(11, parent, "p");
    rig.map(12, parent, 0x1000, "/p");
    rig.fork(20, parent, child);
    rig.map(21, parent, 0x2000, "/parent.so");
    rig.map(22, child, 0x3000, "/child.so");
    let of = |tgid, start| Who {
        tgid,
        start,
        exec: 1,
        comm: "p",
    };
    for (time, address) in [(30, 0x1010), (31, 0x2010), (32, 0x3010)] {
        rig.sample(time, of(parent, 9), address);
        rig.sample(time, of(child, 19), address);
    }
    let places = |all: &[Seen], tgid| -> Vec<String> {
        let of = all.iter().filter(|seen| seen.tgid == tgid);
        of.map(|seen| seen.place.clone()).collect()
    };
    let (all, _) = rig.finish();
    assert_eq!(places(&all, parent), ["/p+0x10", "/parent.so+0x10", ""]);
    assert_eq!(places(&all, child), ["/p+0x10", "", "/child.so+0x10"]);

    for (scope, known) in [(Scope::Known, false), (Scope::All, true)] {
        let mut rig = Rig::new(scope, None);
        rig.fork(10, NOBODY + 9, stranger);
        rig.batch(20);
        assert_eq!(rig.processes.knows(Pid(stranger)), known, "{scope:?}");
        rig.finish();
    }
}

/// What a launched command does before its exec is the recorder's; how often that was sampled is counted.
#[test]
fn the_launcher_is_left_out() {
    let mut rig = Rig::new(Scope::All, Some(NOBODY));
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.sample(20, who(0, "profiler"), 0x1010);
    rig.batch(21);
    rig.sample(25, who(0, "profiler"), 0x1010);
    rig.exec(30, NOBODY, "a");
    rig.map(31, NOBODY, 0x1000, "/a");
    rig.sample(40, who(1, "a"), 0x1010);
    rig.batch(50);
    let (all, losses) = rig.finish();
    assert_eq!(all, [seen(40, (NOBODY, 5), "a", "/a+0x10")]);
    assert_eq!(losses.of_class(LossClass::Launcher), 2);
}

/// `NOBODY` as it started at 5, after so many execs.
fn who(exec: u32, comm: &'static str) -> Who {
    Who {
        tgid: NOBODY,
        start: 5,
        exec,
        comm,
    }
}

/// After lost records nothing known before is believed, until an exec makes all of it new.
#[test]
fn after_lost_records_old_mappings_name_nothing() {
    let mut rig = Rig::new(Scope::All, None);
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.exec(11, NOBODY, "a");
    rig.map(12, NOBODY, 0x1000, "/a");
    rig.sample(20, who(1, "a"), 0x1010);
    rig.batch(30);
    rig.sample(35, who(1, "a"), 0x1010);
    rig.event(40, SideKind::Lost(3));
    rig.sample(45, who(1, "a"), 0x1010);
    rig.batch(50);
    rig.sample(55, who(1, "a"), 0x1010);
    rig.batch(58);
    rig.exec(60, NOBODY, "b");
    rig.map(61, NOBODY, 0x1000, "/b");
    rig.sample(65, who(2, "b"), 0x1010);
    let (all, losses) = rig.finish();
    let expected = [
        seen(20, (NOBODY, 5), "a", "/a+0x10"),
        // What was lost may be of any time since the batch before.
        seen(35, (NOBODY, 5), "a", ""),
        seen(45, (NOBODY, 5), "a", ""),
        seen(55, (NOBODY, 5), "a", ""),
        seen(65, (NOBODY, 5), "b", "/b+0x10"),
    ];
    assert_eq!(all, expected);
    assert_eq!(losses.of_class(LossClass::SideBand), 3);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1, "one process");
}

/// An exec that was not told shows in the number of execs, and the names of the program before are not used.
#[test]
fn a_missed_exec_is_noticed() {
    let mut rig = Rig::new(Scope::All, None);
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.exec(11, NOBODY, "a");
    rig.map(12, NOBODY, 0x1000, "/a");
    rig.sample(20, who(1, "a"), 0x1010);
    rig.batch(30);
    rig.sample(35, who(2, "b"), 0x1010);
    let (all, losses) = rig.finish();
    let expected = [
        seen(20, (NOBODY, 5), "a", "/a+0x10"),
        seen(35, (NOBODY, 5), "b", ""),
    ];
    assert_eq!(all, expected);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1);
}

/// A CPU ran unwatched: samples since the last time that all were watched may be of mappings nobody told of, also those
/// placed already. A process that had ended by then is known as it was.
#[test]
fn what_was_placed_while_a_cpu_was_unwatched_is_doubted() {
    let (gone, there) = (NOBODY, NOBODY + 1);
    let of = |tgid| Who {
        tgid,
        start: 5,
        exec: 1,
        comm: "a",
    };
    let mut rig = Rig::new(Scope::All, None);
    for process in [gone, there] {
        rig.fork(10, NOBODY + 9, process);
        rig.exec(11, process, "a");
        rig.map(12, process, 0x1000, "/a");
        rig.sample(20, of(process), 0x1010);
    }
    rig.exit(25, gone);
    rig.batch(30);
    rig.sample(35, of(there), 0x1010);
    rig.batch(40);
    rig.sample(45, of(there), 0x1010);
    rig.batch(50);
    rig.drain.doubt(&mut rig.processes, Timestamp(32));
    rig.sample(55, of(there), 0x1010);
    let (all, losses) = rig.finish();
    let expected = [
        seen(20, (gone, 5), "a", "/a+0x10"),
        seen(20, (there, 5), "a", "/a+0x10"),
        seen(35, (there, 5), "a", ""),
        seen(45, (there, 5), "a", ""),
        seen(55, (there, 5), "a", ""),
    ];
    assert_eq!(all, expected);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1);
}
