//! Small captures whose report is known to the byte, and the program that makes it.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bprof::capture::{CaptureWriter, SampleInput};
use bprof::event::{
    BuildId, FileVersion, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp, sample_flags,
};
use bprof::format::aid::{KernelSymbol, KernelSymbols};
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessId, ProcessRecord, Task};
use object::{Object, ObjectSegment, ObjectSymbol};

/// A real program, so that names come out of an ELF file. Its functions are long enough for a return
/// address in the middle.
const SOURCE: &str = "
volatile int sink;
__attribute__((noinline)) int leaf(int x) { sink += x; sink ^= x; sink -= x; return sink; }
__attribute__((noinline)) int mid(int x) { sink += x; return leaf(x) + leaf(x + 1) + sink; }
int main(void) { sink = 1; return mid(3) + mid(4) + sink; }
";

/// A compiled program and where its functions are.
pub struct Elf {
    pub path: PathBuf,
    build_id: Option<BuildId>,
    bytes: Vec<u8>,
}

impl Elf {
    /// Compiles `SOURCE` as `dir/name`, with a build ID.
    pub fn compile(dir: &Path, name: &str) -> Elf {
        Elf::build(dir, name, SOURCE)
    }

    /// Compiles `source` as `dir/name`, with a build ID.
    pub fn build(dir: &Path, name: &str, source: &str) -> Elf {
        let path = dir.join(name);
        let text = dir.join("source.c");
        fs::write(&text, source).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-fcf-protection=none", "-Wl,--build-id", "-o"])
            .arg(&path)
            .arg(&text);
        assert!(gcc.status().unwrap().success());
        Elf::open(path)
    }

    /// Compiles `dir/name` from a source file that is there, with flags of choice.
    pub fn with(dir: &Path, name: &str, compiler: &str, source: &Path, flags: &[&str]) -> Elf {
        let path = dir.join(name);
        let mut command = Command::new(compiler);
        command.current_dir(dir).args(flags).arg("-o").arg(&path);
        let status = command.arg(source).status().unwrap();
        assert!(status.success(), "{compiler} {flags:?}");
        Elf::open(path)
    }

    /// A file that is there.
    pub fn open(path: PathBuf) -> Elf {
        let bytes = fs::read(&path).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let build_id = elf.build_id().unwrap().and_then(BuildId::new);
        Elf {
            path,
            build_id,
            bytes,
        }
    }

    /// File offsets of a function's bytes.
    pub fn range(&self, function: &str) -> std::ops::Range<u64> {
        let elf = object::File::parse(&*self.bytes).unwrap();
        let mut symbols = elf.symbols();
        let symbol = symbols.find(|s| s.name() == Ok(function)).unwrap();
        let start = self.offset(function);
        start..start + symbol.size()
    }

    /// File offsets of the one function in whose mangled name `part` is.
    pub fn range_like(&self, part: &str) -> std::ops::Range<u64> {
        let elf = object::File::parse(&*self.bytes).unwrap();
        let mut names = elf.symbols().filter_map(|s| s.name().ok());
        let name = names.find(|name| name.contains(part)).unwrap();
        self.range(name)
    }

    pub fn build_id(&self) -> &BuildId {
        self.build_id.as_ref().unwrap()
    }

    /// File offset of a function.
    pub fn offset(&self, function: &str) -> u64 {
        let elf = object::File::parse(&*self.bytes).unwrap();
        let address = elf
            .symbols()
            .find(|s| s.name() == Ok(function))
            .unwrap()
            .address();
        let covers =
            |s: &object::Segment<'_, '_>| (s.address()..s.address() + s.size()).contains(&address);
        let segment = elf.segments().find(covers).unwrap();
        address - segment.address() + segment.file_range().0
    }

    pub fn mapped(&self) -> MappedFile {
        MappedFile {
            kind: MappedKind::File,
            path: self.path.as_os_str().as_bytes().to_vec(),
            build_id: self.build_id.clone(),
            inode: None,
            version: self.build_id.is_none().then(|| self.version()),
            deleted: false,
        }
    }

    pub fn version(&self) -> FileVersion {
        let meta = fs::metadata(&self.path).unwrap();
        FileVersion {
            size: meta.len(),
            mtime_sec: meta.mtime(),
            mtime_nsec: meta.mtime_nsec() as u32,
        }
    }
}

/// Runs a tool of binutils and the like, which must work.
pub fn tool(dir: &Path, name: &str, args: &[&str]) {
    let mut command = Command::new(name);
    let status = command.current_dir(dir).args(args).status();
    let status =
        status.unwrap_or_else(|err| panic!("{name}: {err} (see PACKAGES in the Makefile)"));
    assert!(status.success(), "{name} {args:?}");
}

/// A capture of `file`, one sample at each of `offsets`.
pub fn hits(file: &MappedFile, offsets: impl IntoIterator<Item = u64>) -> Vec<u8> {
    Scene::of(file, offsets).finish()
}

/// Something mapped that is no file.
pub fn memory(kind: MappedKind, path: &str) -> MappedFile {
    MappedFile {
        kind,
        path: path.into(),
        build_id: None,
        inode: None,
        version: None,
        deleted: false,
    }
}

/// A user stack is of an executable mapped here, whole.
pub const BASE: u64 = 0x40_0000;
/// Bytes mapped.
pub const LEN: u64 = 0x10_0000;

pub fn header() -> Header {
    Header {
        host: "web1".to_owned(),
        boot_id: String::new(),
        kernel_release: "6.18.0".to_owned(),
        kernel_build_id: None,
        arch: "x86_64".to_owned(),
        page_size: 4096,
        clock_ticks: 100,
        cpus_online: 2,
        wall_offset_ns: 1_700_000_000_000_000_000,
        start_time: Timestamp(1_000_000_000),
        events: vec![EventInfo {
            name: "cpu-clock".to_owned(),
            sampling: Sampling::Frequency(99),
        }],
        target: "system-wide".to_owned(),
        user_stack_limit: 127,
        kernel_stack_limit: 127,
        tool: "bprof test".to_owned(),
        degraded: Vec::new(),
        user_stacks: bprof::event::UserStacks::default(),
    }
}

/// Writes a capture fact by fact.
pub struct Scene {
    pub writer: CaptureWriter<Vec<u8>>,
}

impl Scene {
    pub fn new() -> Scene {
        Scene {
            writer: CaptureWriter::create(Vec::new(), &header()).unwrap(),
        }
    }

    /// One sample at each of `offsets` of `file`.
    pub fn of(file: &MappedFile, offsets: impl IntoIterator<Item = u64>) -> Scene {
        let mut s = Scene::new();
        let app = s.process(100, 500);
        s.image(app, 0, 0, "app");
        s.map(app, 0, BASE, file);
        for (i, offset) in offsets.into_iter().enumerate() {
            s.sample(Taken {
                user: &[BASE + offset],
                ..Taken::of(app, 100, "app", 1_000_000_000 + i as u64)
            });
        }
        s
    }

    /// A user process that runs nothing yet.
    pub fn process(&mut self, pid: u32, start: u64) -> ProcessId {
        let key = ProcessKey {
            tgid: Pid(pid),
            start_time: Timestamp(start),
        };
        self.writer
            .add_process(key, Pid(1), false, Origin::Event, None)
            .unwrap()
    }

    pub fn kernel_thread(&mut self, pid: u32, comm: &str) -> ProcessId {
        let key = ProcessKey {
            tgid: Pid(pid),
            start_time: Timestamp(1),
        };
        let process = self
            .writer
            .add_process(key, Pid(2), true, Origin::Snapshot, None)
            .unwrap();
        self.image(process, 0, 0, comm);
        process
    }

    pub fn image(&mut self, process: ProcessId, time: u64, exec_number: u32, comm: &str) {
        let comm = self.writer.string(comm.as_bytes()).unwrap();
        let origin = if time == 0 {
            Origin::Snapshot
        } else {
            Origin::Event
        };
        let time = Timestamp(time);
        self.writer
            .process(ProcessRecord::Image {
                process,
                time,
                exec_number,
                comm,
                origin,
            })
            .unwrap();
    }

    /// Maps all of `file` at `start`.
    pub fn map(&mut self, process: ProcessId, time: u64, start: u64, file: &MappedFile) {
        let file = self.writer.file(file).unwrap();
        let template = MappingTemplate {
            file,
            file_offset: 0,
            len: LEN,
            prot: 5,
        };
        let mapping = self.writer.mapping(&template).unwrap();
        let placed = PlacedMapping { start, mapping };
        self.writer
            .process(ProcessRecord::Map {
                process,
                time: Timestamp(time),
                placed,
            })
            .unwrap();
    }

    pub fn sample(&mut self, sample: Taken<'_>) {
        let comm = self.writer.string(sample.comm.as_bytes()).unwrap();
        let task = Task {
            process: sample.process,
            tid: Pid(sample.tid),
            exec_id: sample.exec_id,
            comm,
        };
        let task = self.writer.task(task).unwrap();
        self.writer
            .sample(&SampleInput {
                time: Timestamp(sample.time),
                cpu: sample.cpu,
                task,
                user: sample.user,
                kernel: sample.kernel,
                weight: sample.weight,
                flags: sample.flags,
                event: 0,
            })
            .unwrap();
    }

    pub fn kernel_symbols(&mut self) {
        let symbol = |start, name: &str, module: Option<&str>| KernelSymbol {
            start,
            end: start + 0x100,
            name: name.to_owned(),
            module: module.map(str::to_owned),
        };
        self.writer
            .kernel_symbols(&KernelSymbols {
                stext: KERNEL,
                symbols: vec![
                    symbol(KERNEL, "entry_SYSCALL_64", None),
                    symbol(KERNEL + 0x100, "do_syscall_64", None),
                    symbol(KERNEL + 0x200, "nft_do_chain", Some("nf_tables")),
                ],
            })
            .unwrap();
    }

    /// Ends the capture in order and gives its bytes.
    pub fn finish(self) -> Vec<u8> {
        let samples = self.writer.samples_written() + self.writer.pending_samples() as u64;
        let end = End {
            time: Timestamp(9_000_000_000),
            reason: EndReason::Duration,
            samples,
            lost: 0,
            processes: 1,
        };
        self.writer.finish(&end).unwrap()
    }

    /// The bytes as a recorder that is killed leaves them.
    pub fn cut(mut self) -> Vec<u8> {
        self.writer.flush().unwrap();
        self.writer.get_ref().clone()
    }
}

/// Where the kernel's symbols begin.
pub const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// A sample with usual values.
#[derive(Clone, Copy)]
pub struct Taken<'a> {
    pub process: ProcessId,
    pub tid: u32,
    pub comm: &'a str,
    pub exec_id: u32,
    pub time: u64,
    pub cpu: u32,
    pub user: &'a [u64],
    pub kernel: &'a [u64],
    pub flags: u8,
    pub weight: u64,
}

impl Taken<'_> {
    pub fn of(process: ProcessId, tid: u32, comm: &str, time: u64) -> Taken<'_> {
        Taken {
            process,
            tid,
            comm,
            exec_id: 1,
            time,
            cpu: 0,
            user: &[],
            kernel: &[],
            flags: 0,
            weight: 1,
        }
    }
}

/// The capture most tests look at: `app` with user, kernel and cut stacks, and a kernel thread.
pub fn usual(elf: &Elf) -> Scene {
    let mut s = Scene::new();
    let at = |function: &str, inside: u64| BASE + elf.offset(function) + inside;
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    s.map(app, 0, BASE, &elf.mapped());
    let kworker = s.kernel_thread(7, "kworker/0:1");
    s.kernel_symbols();

    let busy = [at("leaf", 0), at("mid", 5), at("main", 5)];
    let syscall = [KERNEL + 0x110, KERNEL + 0x10];
    let taken = Taken::of(app, 100, "app", 1_000_000_000);
    s.sample(Taken {
        user: &busy,
        ..taken
    });
    s.sample(Taken {
        user: &busy,
        time: 1_010_000_000,
        ..taken
    });
    // A return address that is the first byte of `mid`: the call is the last one before it.
    s.sample(Taken {
        user: &[at("mid", 0), at("main", 5)],
        kernel: &syscall,
        time: 1_020_000_000,
        tid: 101,
        comm: "worker",
        flags: sample_flags::IN_KERNEL,
        ..taken
    });
    s.writer.flush().unwrap();
    s.sample(Taken {
        user: &busy[..2],
        time: 2_000_000_000,
        flags: sample_flags::USER_TRUNCATED,
        ..taken
    });
    s.sample(Taken {
        user: &[0x1234],
        time: 2_010_000_000,
        cpu: 1,
        ..taken
    });
    let kthread = Taken::of(kworker, 7, "kworker/0:1", 2_005_000_000);
    s.sample(Taken {
        kernel: &[KERNEL + 0x200, KERNEL + 0x1ff0],
        cpu: 1,
        ..kthread
    });
    s
}

/// A directory, a program in it, and captures.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub elf: Elf,
}

impl Bench {
    pub fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let elf = Elf::compile(dir.path(), "app");
        Bench { dir, elf }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a capture file and gives its path.
    pub fn capture(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// `profiler report` with arguments.
pub fn profiler<I: AsRef<std::ffi::OsStr>>(args: &[I]) -> Command {
    subcommand("report", args)
}

/// Any command of the program with arguments.
pub fn subcommand<I: AsRef<std::ffi::OsStr>>(name: &str, args: &[I]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_profiler"));
    command.arg(name).args(args).stdin(Stdio::null());
    command
}

/// What a run printed and how it ended.
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Run {
        Run::from(command.output().unwrap())
    }

    /// `profiler report OPTIONS FILE`.
    pub fn report(options: &[&str], file: &Path) -> Run {
        Run::of(profiler(options).arg(file))
    }

    /// `profiler report OPTIONS -` with `bytes` on standard input.
    pub fn piped(options: &[&str], bytes: &[u8]) -> Run {
        let mut command = profiler(options);
        command
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        Run::from(output)
    }

    /// Checks that it worked and gives what was printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
