//! Never a name of another process, image or mapping.

use bprof::event::sample_flags;

use super::fixture::{BASE, Bench, Elf, Run, Scene, Taken, memory};
use bprof::event::MappedKind;
use bprof::event::Timestamp;
use bprof::format::process::ProcessRecord;

const ONE: &str =
    "int sink; int one_spin(int x) { return sink += x; } int main(void) { return one_spin(1); }";
const TWO: &str =
    "int sink; int two_spin(int x) { return sink += x; } int main(void) { return two_spin(1); }";

struct Pair {
    bench: Bench,
    one: Elf,
    two: Elf,
}

impl Pair {
    fn new() -> Pair {
        let bench = Bench::new();
        let one = Elf::build(bench.dir.path(), "one", ONE);
        let two = Elf::build(bench.dir.path(), "two", TWO);
        // Built alike, so that one address means a function in each of them.
        assert_eq!(one.offset("one_spin"), two.offset("two_spin"));
        Pair { bench, one, two }
    }

    fn spin(&self) -> u64 {
        BASE + self.one.offset("one_spin")
    }

    fn folded(&self, s: Scene) -> String {
        let capture = self.bench.capture("run.bprof", &s.finish());
        Run::report(&["--folded"], &capture).ok()
    }
}

#[test]
fn a_reused_pid_is_two_processes() {
    let pair = Pair::new();
    let mut s = Scene::new();
    for (start, elf, comm) in [
        (100, &pair.one, "one"),
        (300, &pair.two, "two"),
        (500, &pair.one, "one"),
    ] {
        let p = s.process(42, start);
        s.image(p, start, 0, comm);
        s.map(p, start + 1, BASE, &elf.mapped());
        s.sample(Taken {
            user: &[pair.spin()],
            ..Taken::of(p, 42, comm, start + 50)
        });
        s.writer
            .process(ProcessRecord::Exit {
                process: p,
                time: Timestamp(start + 90),
            })
            .unwrap();
    }
    assert_eq!(pair.folded(s), "one-42;one_spin 2\ntwo-42;two_spin 1\n");
}

#[test]
fn exec_changes_names_at_its_time() {
    let pair = Pair::new();
    let mut s = Scene::new();
    let p = s.process(42, 100);
    s.image(p, 0, 0, "one");
    s.map(p, 0, BASE, &pair.one.mapped());
    s.image(p, 1000, 1, "two");
    s.map(p, 1010, BASE, &pair.two.mapped());
    let taken = Taken {
        user: &[pair.spin()],
        ..Taken::of(p, 42, "x", 0)
    };
    s.sample(Taken {
        time: 999,
        exec_id: 1,
        ..taken
    });
    // Between exec and the first mapping there is nothing.
    s.sample(Taken {
        time: 1005,
        exec_id: 2,
        ..taken
    });
    s.sample(Taken {
        time: 1010,
        exec_id: 2,
        ..taken
    });
    // Inside execve after the image has changed: the stack is of the one that is gone.
    s.sample(Taken {
        time: 1011,
        exec_id: 1,
        flags: sample_flags::IN_EXEC,
        ..taken
    });
    // Inside execve before it has: still the old one.
    s.sample(Taken {
        time: 998,
        exec_id: 1,
        flags: sample_flags::IN_EXEC,
        ..taken
    });
    assert_eq!(
        pair.folded(s),
        "one-42;one_spin 2\ntwo-42 1\ntwo-42;[unknown] 1\ntwo-42;two_spin 1\n"
    );
}

#[test]
fn a_lost_exec_costs_the_names_after_it() {
    let pair = Pair::new();
    let mut s = Scene::new();
    let p = s.process(42, 100);
    s.image(p, 0, 0, "one");
    s.map(p, 0, BASE, &pair.one.mapped());
    let taken = Taken {
        user: &[pair.spin()],
        ..Taken::of(p, 42, "x", 0)
    };
    // CPU 0 comes first in the frame, but its sample is the later one.
    s.sample(Taken {
        time: 900,
        exec_id: 8,
        cpu: 0,
        ..taken
    });
    s.sample(Taken {
        time: 500,
        exec_id: 7,
        cpu: 1,
        ..taken
    });
    assert_eq!(pair.folded(s), "one-42;[unknown] 1\none-42;one_spin 1\n");
}

#[test]
fn a_library_loaded_over_another_takes_its_addresses_from_then_on() {
    let pair = Pair::new();
    let mut s = Scene::new();
    let p = s.process(42, 100);
    s.image(p, 0, 0, "host");
    s.map(p, 200, BASE, &pair.one.mapped());
    s.map(p, 300, BASE, &pair.two.mapped());
    s.map(p, 400, BASE, &memory(MappedKind::Anonymous, "//anon"));
    for time in [150, 250, 350, 450] {
        s.sample(Taken {
            user: &[pair.spin()],
            ..Taken::of(p, 42, "host", time)
        });
    }
    assert_eq!(
        pair.folded(s),
        "host-42;[anon] 1\nhost-42;[unknown] 1\nhost-42;one_spin 1\nhost-42;two_spin 1\n"
    );
}

#[test]
fn records_of_later_frames_leave_earlier_samples_alone() {
    let pair = Pair::new();
    let mut s = Scene::new();
    let p = s.process(42, 100);
    s.image(p, 0, 0, "one");
    s.map(p, 0, BASE, &pair.one.mapped());
    let taken = Taken {
        user: &[pair.spin()],
        ..Taken::of(p, 42, "one", 500)
    };
    s.sample(taken);
    s.writer.flush().unwrap();
    s.map(p, 600, BASE, &pair.two.mapped());
    s.sample(Taken { time: 550, ..taken });
    s.sample(Taken { time: 650, ..taken });
    s.writer.start_segment().unwrap();
    // The next segment says again who was there.
    let p = s.process(42, 100);
    s.image(p, 0, 0, "one");
    s.map(p, 600, BASE, &pair.two.mapped());
    s.sample(Taken {
        process: p,
        time: 700,
        ..taken
    });
    assert_eq!(pair.folded(s), "one-42;one_spin 2\none-42;two_spin 2\n");
}

#[test]
fn renames_and_loaders_give_the_right_process_name() {
    let pair = Pair::new();
    let mut s = Scene::new();
    let p = s.process(42, 100);
    s.image(p, 0, 0, "first");
    let comm = s.writer.string(b"second").unwrap();
    s.writer
        .process(ProcessRecord::Comm {
            process: p,
            time: Timestamp(500),
            comm,
        })
        .unwrap();
    s.sample(Taken::of(p, 43, "thread", 400));
    s.sample(Taken::of(p, 43, "thread", 600));
    let q = s.process(50, 100);
    s.image(q, 0, 0, "ld-linux-x86-64");
    let mut loader = pair.one.mapped();
    loader.path = b"/lib64/ld-linux-x86-64.so.2".to_vec();
    s.map(q, 0, 0x7000_0000, &loader);
    s.map(q, 0, BASE, &pair.two.mapped());
    s.sample(Taken {
        user: &[pair.spin()],
        ..Taken::of(q, 50, "ld-linux-x86-64", 400)
    });
    assert_eq!(
        pair.folded(s),
        "first-42 1\nsecond-42 1\ntwo-50;two_spin 1\n"
    );
}
