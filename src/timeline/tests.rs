use super::*;
use crate::event::{MappedFile, MappedKind, Origin, Pid};
use crate::format::process::PlacedMapping;

/// Builds a timeline record by record.
#[derive(Default)]
struct Scene {
    timeline: Timeline,
    mappings: Vec<MappingTemplate>,
    spaces: Vec<Space>,
}

impl Scene {
    fn apply(&mut self, record: ProcessRecord) {
        let tables = Tables {
            mappings: &self.mappings,
            spaces: &self.spaces,
        };
        self.timeline.apply(&record, tables);
    }

    fn process(&mut self, tgid: u32, start: u64) -> ProcessId {
        self.apply(ProcessRecord::Process {
            key: ProcessKey {
                tgid: Pid(tgid),
                start_time: Timestamp(start),
            },
            parent: Pid(1),
            kernel: false,
            origin: Origin::Event,
            cgroup: None,
        });
        self.timeline.process_count() as u32 - 1
    }

    fn image(&mut self, process: ProcessId, time: u64, exec_number: u32, comm: StringId) {
        let time = Timestamp(time);
        self.apply(ProcessRecord::Image {
            process,
            time,
            exec_number,
            comm,
            origin: Origin::Event,
        });
    }

    fn template(&mut self, file: u32, file_offset: u64, len: u64) -> MappingId {
        self.mappings.push(MappingTemplate {
            file,
            file_offset,
            len,
            prot: 5,
        });
        self.mappings.len() as u32 - 1
    }

    fn map(&mut self, process: ProcessId, time: u64, start: u64, mapping: MappingId) {
        let placed = PlacedMapping { start, mapping };
        self.apply(ProcessRecord::Map {
            process,
            time: Timestamp(time),
            placed,
        });
    }

    fn space(&mut self, process: ProcessId, time: u64, mappings: &[(u64, MappingId)]) {
        let mappings = mappings.iter().map(|(start, mapping)| PlacedMapping {
            start: *start,
            mapping: *mapping,
        });
        self.spaces.push(Space {
            mappings: mappings.collect(),
        });
        let space = self.spaces.len() as u32 - 1;
        let time = Timestamp(time);
        self.apply(ProcessRecord::Space {
            process,
            time,
            space,
            origin: Origin::Snapshot,
        });
    }

    fn view(&self, process: ProcessId, time: u64) -> View {
        self.timeline.view(process, Timestamp(time)).0
    }

    /// (file, file offset) at an address.
    fn at(&self, process: ProcessId, time: u64, address: u64) -> Option<(u32, u64)> {
        let tables = Tables {
            mappings: &self.mappings,
            spaces: &self.spaces,
        };
        let found = self
            .timeline
            .locate(self.view(process, time), address, tables)?;
        Some((
            self.mappings[found.mapping as usize].file,
            found.file_offset,
        ))
    }
}

#[test]
fn a_reused_pid_is_another_process_with_its_own_mappings() {
    let mut s = Scene::default();
    let (one, two) = (s.template(1, 0, 0x100), s.template(2, 0x1000, 0x100));
    let first = s.process(42, 10);
    s.image(first, 10, 0, 0);
    s.map(first, 11, 0x4000, one);
    s.apply(ProcessRecord::Exit {
        process: first,
        time: Timestamp(20),
    });
    let second = s.process(42, 30);
    s.image(second, 30, 0, 0);
    s.map(second, 31, 0x4000, two);

    assert_eq!(s.at(first, 15, 0x4010), Some((1, 0x10)));
    assert_eq!(s.at(second, 35, 0x4010), Some((2, 0x1010)));
    // Before its mapping was made the second one has nothing there, least of all the first one's.
    assert_eq!(s.at(second, 30, 0x4010), None);
    assert_ne!(s.timeline.key(first), s.timeline.key(second));
}

#[test]
fn exec_drops_every_mapping_and_earlier_samples_keep_theirs() {
    let mut s = Scene::default();
    let (sh, prog) = (s.template(1, 0, 0x1000), s.template(2, 0, 0x1000));
    let p = s.process(7, 1);
    s.image(p, 0, 0, 0);
    s.space(p, 0, &[(0x10000, sh)]);
    s.image(p, 100, 1, 1);
    s.map(p, 102, 0x20000, prog);

    assert_eq!(s.at(p, 99, 0x10010), Some((1, 0x10)));
    assert_eq!(s.at(p, 100, 0x10010), None);
    assert_eq!(s.at(p, 102, 0x10010), None);
    assert_eq!(s.at(p, 102, 0x20010), Some((2, 0x10)));
    assert_eq!(s.at(p, 99, 0x20010), None);
    assert_eq!(s.timeline.comm(s.view(p, 99)), Some(0));
    assert_eq!(s.timeline.comm(s.view(p, 100)), Some(1));
}

#[test]
fn a_library_is_there_from_its_time_on_and_a_remap_takes_only_its_part() {
    let mut s = Scene::default();
    let main = s.template(1, 0, 0x4000);
    let plug = s.template(2, 0x3000, 0x1000);
    let other = s.template(3, 0, 0x1000);
    let p = s.process(7, 1);
    s.image(p, 0, 0, 0);
    s.space(p, 0, &[(0x10000, main)]);
    s.map(p, 50, 0x90000, plug);
    s.map(p, 70, 0x90000, other);
    s.map(p, 80, 0x11000, plug);

    assert_eq!(s.at(p, 49, 0x90004), None);
    assert_eq!(s.at(p, 50, 0x90004), Some((2, 0x3004)));
    assert_eq!(s.at(p, 69, 0x90004), Some((2, 0x3004)));
    assert_eq!(s.at(p, 70, 0x90004), Some((3, 4)));
    assert_eq!(s.at(p, 79, 0x11004), Some((1, 0x1004)));
    assert_eq!(s.at(p, 80, 0x11004), Some((2, 0x3004)));
    assert_eq!(s.at(p, 80, 0x12004), Some((1, 0x2004)));
    assert_eq!(s.at(p, 80, 0x10fff), Some((1, 0xfff)));
}

#[test]
fn a_whole_list_replaces_what_was_known() {
    let mut s = Scene::default();
    let (a, b) = (s.template(1, 0, 0x1000), s.template(2, 0, 0x1000));
    let p = s.process(7, 1);
    s.image(p, 0, 0, 0);
    s.map(p, 10, 0x10000, a);
    s.space(p, 20, &[(0x20000, b)]);
    s.map(p, 30, 0x30000, a);

    assert_eq!(s.at(p, 19, 0x10000), Some((1, 0)));
    assert_eq!(s.at(p, 20, 0x10000), None);
    assert_eq!(s.at(p, 20, 0x20000), Some((2, 0)));
    assert_eq!(s.at(p, 29, 0x30000), None);
    assert_eq!(s.at(p, 30, 0x30000), Some((1, 0)));
}

#[test]
fn records_of_later_frames_do_not_change_earlier_answers() {
    let mut s = Scene::default();
    let (a, b) = (s.template(1, 0, 0x1000), s.template(2, 0, 0x1000));
    let p = s.process(7, 1);
    s.image(p, 0, 0, 0);
    s.map(p, 10, 0x10000, a);
    let (before, until) = s.timeline.view(p, Timestamp(15));
    assert_eq!((before.since, until), (Timestamp(10), Timestamp::MAX));
    s.map(p, 20, 0x10000, b);
    assert_eq!(s.timeline.view(p, Timestamp(15)), (before, Timestamp(20)));
    let tables = Tables {
        mappings: &s.mappings,
        spaces: &s.spaces,
    };
    assert_eq!(
        s.timeline
            .locate(before, 0x10000, tables)
            .map(|l| l.mapping),
        Some(a)
    );
}

#[test]
fn a_lost_exec_shows_in_the_exec_id() {
    let mut s = Scene::default();
    let p = s.process(7, 1);
    s.image(p, 0, 0, 0);
    s.image(p, 100, 1, 1);
    let (old, new) = (s.view(p, 50), s.view(p, 150));
    s.timeline.note_exec_id(old, 3);
    s.timeline.note_exec_id(new, 5);
    s.timeline.note_exec_id(new, 4);
    assert!(s.timeline.is_image_of(old, 3));
    assert!(s.timeline.is_image_of(new, 4));
    assert!(!s.timeline.is_image_of(new, 5));
    // Before the first image known there is none.
    let late = s.process(8, 1);
    s.image(late, 10, 0, 0);
    assert!(!s.timeline.is_image_of(s.view(late, 5), 3));
}

#[test]
fn inside_execve_the_stack_may_be_of_the_image_before() {
    let mut s = Scene::default();
    let p = s.process(7, 1);
    s.image(p, 0, 0, 0);
    s.image(p, 100, 1, 1);
    assert!(!s.timeline.may_follow_exec(s.view(p, 99)));
    assert!(s.timeline.may_follow_exec(s.view(p, 100)));
    let born = s.process(8, 50);
    s.image(born, 50, 0, 0);
    assert!(
        !s.timeline.may_follow_exec(s.view(born, 60)),
        "a fork is no exec"
    );
}

#[test]
fn names_change_with_time_and_boundaries_split_views() {
    let mut s = Scene::default();
    let p = s.process(7, 1);
    s.image(p, 0, 0, 5);
    s.apply(ProcessRecord::Comm {
        process: p,
        time: Timestamp(30),
        comm: 6,
    });
    assert_eq!(s.timeline.comm(s.view(p, 29)), Some(5));
    assert_eq!(s.timeline.comm(s.view(p, 30)), Some(6));
    s.timeline.set_boundaries(p, [40, 50].map(Timestamp).into());
    assert_eq!(s.timeline.view(p, Timestamp(35)).1, Timestamp(40));
    let (view, until) = s.timeline.view(p, Timestamp(45));
    assert_eq!((view.since, until), (Timestamp(40), Timestamp(50)));
    assert_eq!(s.timeline.comm(view), Some(6));
}

#[test]
fn a_program_run_by_the_loader_has_its_own_name() {
    let file = |path: &str| MappedFile {
        kind: MappedKind::File,
        path: path.into(),
        build_id: None,
        inode: None,
        version: None,
        deleted: false,
    };
    let files = [
        file("/lib64/ld-linux-x86-64.so.2"),
        file("/usr/lib/libc.so.6"),
        file("/home/me/my app"),
        file("/usr/lib/plug.bin"),
    ];
    let mut s = Scene::default();
    let ids: Vec<_> = (0..4).map(|f| s.template(f, 0, 0x1000)).collect();
    let by_loader = s.process(7, 1);
    s.image(by_loader, 0, 0, 0);
    s.space(
        by_loader,
        0,
        &[(0x70000, ids[0]), (0x10000, ids[1]), (0x20000, ids[2])],
    );
    let plain = s.process(8, 1);
    s.image(plain, 5, 0, 0);
    s.map(plain, 5, 0x20000, ids[3]);
    s.map(plain, 6, 0x30000, ids[0]);
    s.map(plain, 7, 0x40000, ids[2]);
    let by_event = s.process(9, 1);
    s.image(by_event, 5, 0, 0);
    for (i, id) in ids.iter().enumerate() {
        s.map(by_event, 5 + i as u64, 0x10000 * (i as u64 + 1), *id);
    }

    let tables = Tables {
        mappings: &s.mappings,
        spaces: &s.spaces,
    };
    let name = |p| s.timeline.loaded_program(s.view(p, 9), tables, &files);
    assert_eq!(name(by_loader), Some(&b"my app"[..]));
    assert_eq!(name(plain), None);
    assert_eq!(name(by_event), Some(&b"my app"[..]));
}

#[test]
fn odd_records_do_no_harm() {
    let mut s = Scene::default();
    s.image(9, 5, 0, 0);
    let p = s.process(7, 1);
    s.map(p, 5, 0x1000, 77);
    s.image(p, 50, 0, 0);
    let huge = s.template(0, u64::MAX, u64::MAX);
    s.map(p, 10, u64::MAX - 5, huge);
    assert_eq!(s.at(p, 60, u64::MAX - 4), None, "offset beyond 2^64");
    assert_eq!(s.at(p, 60, u64::MAX - 5), Some((0, u64::MAX)));
    assert_eq!(
        s.at(p, 20, u64::MAX - 5),
        None,
        "times of a process never go back"
    );
    assert_eq!(s.view(99, 5).image, None);
}
